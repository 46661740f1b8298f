// Functions of single numbers, sums and the step of AdamW for numerics: exact, where PyTorch's depend on the width of the processor's
// registers: IEEE + - * / sqrt of float64 or float32 in the order of the source, and no function of the C library.

#include "common.h"

INLINE double nearest_whole(double x) { return (x + 6755399441055744.0) - 6755399441055744.0; }

// 2^n, -1022 <= n <= 1023.
INLINE double two_to(double n) {
    union {
        uint64_t bits;
        double value;
    } power = {(uint64_t)((int64_t)n + 1023) << 52};
    return power.value;
}

// exp(x) - 1 within 1e-15 of itself, or with `one` 1 the whole exp(x); x is clamped to -700..700. The series of what is left of x without
// multiples of ln 2.
static double exponent_parts(double x, double one) {
    x = x > 700.0 ? 700.0 : x < -700.0 ? -700.0 : x;
    const double n = nearest_whole(x * 1.4426950408889634);
    const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
    double sum = 0.0;
    for (int k = 14; k >= 1; k--) sum = r / k * (1.0 + sum);
    const double power = two_to(n);
    return sum * power + (power - (1.0 - one));
}

// Sine and cosine within 1e-15, |x| < 1e6. The series of what is left of x without multiples of pi / 2, in three parts.
static void circle(double x, double *sine, double *cosine) {
    const double n = nearest_whole(x * 0.63661977236758134);
    const double r = ((x - n * 1.57079632673412561417) - n * 6.07710050630396597660e-11) - n * 2.02226624879595063154e-21;
    const double square = r * r;
    double s = 0.0, c = 0.0;
    for (int k = 18; k >= 2; k -= 2) c = -square / (k * (k - 1)) * (1.0 + c);
    for (int k = 17; k >= 3; k -= 2) s = -square / (k * (k - 1)) * (1.0 + s);
    s = r * (1.0 + s), c = 1.0 + c;
    const int quarter = (int)((int64_t)n & 3);
    *sine = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
    *cosine = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
}

// exp(x), as exact in itself as in its difference from 1.
static double exponential_of(double x) {
    return x < -700.0 ? 0.0 : x < -0.5 ? exponent_parts(x, 1.0) : 1.0 + exponent_parts(x, 0.0);
}

// log(x): -infinity of 0, no number below.
static double logarithm(double x) { return x > 0.0 ? natural_log(x) : x == 0.0 ? -INFINITY : NAN; }

// What `elementwise` and `elementwise64` compute.
enum { EXP, EXP_LESS_ONE, LOG_SIGMOID, SIGMOID, LOG, TANH, COSINE, LOG_REST };

static double value_of(int function, double v) {
    const double fallen = function == LOG_SIGMOID || function == SIGMOID ? exponential_of(v < 0.0 ? v : -v) : 0.0;
    double sine, cosine;
    switch (function) {
        case EXP: return exponential_of(v);
        case EXP_LESS_ONE: return exponent_parts(v, 0.0);
        case LOG_SIGMOID: return (v < 0.0 ? v : 0.0) - natural_log(1.0 + fallen);
        case SIGMOID: return (v < 0.0 ? fallen : 1.0) / (1.0 + fallen);
        case LOG: return logarithm(v);
        case TANH: sine = exponent_parts(v < 0.0 ? -2.0 * v : 2.0 * v, 0.0); return (v < 0.0 ? -sine : sine) / (sine + 2.0);
        case COSINE: circle(v, &sine, &cosine); return cosine;
        default: return logarithm(-exponent_parts(v, 0.0));
    }
}

// out (count) = a function of x (count), rounded to float32 from float64; and of float64.
void elementwise(int function, const float *x, long count, float *out) {
    for (long k = 0; k < count; k++) out[k] = (float)value_of(function, (double)x[k]);
}
void elementwise64(int function, const double *x, long count, double *out) {
    for (long k = 0; k < count; k++) out[k] = value_of(function, x[k]);
}

// Cosines and signed sines (count, 2 * half) of the rotary embedding at `positions` (count): angles position / base^(i / half).
void rotary(const int64_t *positions, long count, long half, double base, float *cosines, float *sines) {
    double *frequency = aligned(half * 8);
    for (long i = 0; i < half; i++) frequency[i] = 1.0 + exponent_parts(-natural_log(base) * ((double)i / (double)half), 0.0);
    for (long m = 0; m < count; m++, cosines += 2 * half, sines += 2 * half)
        for (long i = 0; i < half; i++) {
            double sine, cosine;
            circle((double)positions[m] * frequency[i], &sine, &cosine);
            cosines[i] = cosines[half + i] = (float)cosine;
            sines[i] = (float)-sine, sines[half + i] = (float)sine;
        }
    free(frequency);
}

// x (count) from a normal distribution, of uniform numbers in [0, 1) (2, count).
void normals(const double *uniform, long count, float scale, float *x) {
    for (long k = 0; k < count; k++) {
        double sine, cosine;
        circle(6.283185307179586 * uniform[count + k], &sine, &cosine);
        x[k] = (float)(sqrt(-2.0 * natural_log(1.0 - uniform[k])) * cosine * (double)scale);
    }
}

// *total += the squares of x (count), in 16 sums of float64.
void squares(const float *x, long count, double *total) {
    double sums[LANES] = {0};
    long k = 0;
    for (; k + LANES <= count; k += LANES)
        for (int i = 0; i < LANES; i++) sums[i] += (double)x[k + i] * (double)x[k + i];
    for (; k < count; k++) sums[k % LANES] += (double)x[k] * (double)x[k];
    for (int i = 0; i < LANES; i++) *total += sums[i];
}

// A step of AdamW: the weights times `kept`, less `rate` times the first moment over the root of the second, which is over
// `second_bias`, plus eps.
void adamw_step(float *weight, float *first, float *second, const float *gradient, long count, float beta1, float beta2, float kept,
                float rate, float second_bias, float eps) {
    const float fresh1 = 1.0f - beta1, fresh2 = 1.0f - beta2;
    for (long k = 0; k < count; k++) {
        const float g = gradient[k];
        first[k] = first[k] * beta1 + g * fresh1;
        second[k] = second[k] * beta2 + g * g * fresh2;
        weight[k] = weight[k] * kept - rate * first[k] / (sqrtf(second[k]) / second_bias + eps);
    }
}
