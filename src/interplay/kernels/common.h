// Vectors of floats as wide as the processor's registers, and what all kernels share.
//
// Every result is a fixed sequence of IEEE operations: sums run over 16 lanes in a stated order, products and sums are fused only
// where `fma_of` and `fma_sum` say so, and no operation is left to the compiler to reorder (no -ffast-math, -ffp-contract=off). The same
// inputs give the same bytes on every processor and with any number of threads.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define LANES 16

// A register of the processor, of PART floats or integers, PARTS to 16 lanes: a wider vector would lie in memory. A tile of products has
// TILE_ROWS rows and TILE_VECTORS times 16 columns, whose sums stay in registers.
#if defined(__AVX512F__)
#define PARTS 1
#define TILE_VECTORS 4
#elif defined(__AVX2__)
#define PARTS 2
#define TILE_VECTORS 1
#else
#define PARTS 4
#define TILE_VECTORS 1
#endif
#define TILE_ROWS 6
#define PART (LANES / PARTS)
typedef float vec __attribute__((vector_size(64 / PARTS), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(64 / PARTS), aligned(4), may_alias));

INLINE vec load(const float *p) { return *(const vec *)p; }
INLINE void store(float *p, vec x) { *(vec *)p = x; }
INLINE vec splat(float x) { return x - (vec){0}; }
INLINE vec absolute(vec x) { return (vec)((ivec)x & 0x7fffffff); }

// a where a > b, else b.
INLINE vec larger(vec a, vec b) {
#if defined(__AVX512F__)
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return (vec)(((ivec)a & (a > b)) | ((ivec)b & ~(a > b)));
#endif
}

// a b + c, fused.
INLINE vec fma_of(vec a, vec b, vec c) {
#if defined(__AVX512F__)
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    for (int i = 0; i < PART; i++) c[i] = fmaf(a[i], b[i], c[i]);
    return c;
#endif
}

// sum + a b, fused. By hand, here and in `pair_sum`: GCC 12 copies the sums of the intrinsic functions at each round.
INLINE vec fma_sum(vec sum, vec a, vec b) {
#if defined(__AVX512F__)
    asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
#else
    return fma_of(a, b, sum);
#endif
}

// sum + the products of both halves of each lane.
INLINE ivec pair_sum(ivec sum, ivec a, ivec b) {
#if defined(__AVX512VNNI__)
    asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
#elif defined(__AVX512BW__)
    return sum + (ivec)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return sum + (ivec)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return sum + (ivec)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    return sum + ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
}

// TILE_OF(R, vectors) with constants.
#if TILE_VECTORS == 4
#define BY_VECTORS(R)                                                                                                            \
    if (vectors == 4) TILE_OF(R, 4);                                                                                             \
    else if (vectors == 3) TILE_OF(R, 3);                                                                                        \
    else if (vectors == 2) TILE_OF(R, 2);                                                                                        \
    else TILE_OF(R, 1);
#else
#define BY_VECTORS(R)                                                                                                            \
    (void)vectors;                                                                                                               \
    TILE_OF(R, 1);
#endif

// Sums in 16 lanes, on any processor.
typedef struct {
    vec part[PARTS];
} Lanes;

#if defined(__AVX512F__)
#define HALVES(combine, x)                                                                                                       \
    __m256 eight = combine##256_ps(_mm512_castps512_ps256((__m512)x),                                                            \
                                   _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd((__m512)x), 1)));                    \
    QUARTERS(combine)
#elif defined(__AVX2__)
#define HALVES(combine, x)                                                                                                       \
    __m256 eight = (__m256)x;                                                                                                    \
    QUARTERS(combine)
#endif
#define QUARTERS(combine)                                                                                                        \
    __m128 four = combine##_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));                                  \
    __m128 two = combine##_ps(four, _mm_movehl_ps(four, four));                                                                  \
    return _mm_cvtss_f32(combine##_ss(two, _mm_shuffle_ps(two, two, 1)));
#define _mm_add256_ps _mm256_add_ps
#define _mm_max256_ps _mm256_max_ps

INLINE float lane_max(vec x) {
#if defined(HALVES)
    HALVES(_mm_max, x)
#else
    float s[PART];
    memcpy(s, &x, sizeof s);
    for (int width = PART / 2; width; width /= 2)
        for (int i = 0; i < width; i++) s[i] = s[i] > s[i + width] ? s[i] : s[i + width];
    return s[0];
#endif
}

// The sum over all lanes, halves first.
INLINE float lane_sum(Lanes x) {
    for (int parts = PARTS / 2; parts; parts /= 2)
        for (int p = 0; p < parts; p++) x.part[p] = x.part[p] + x.part[p + parts];
#if defined(HALVES)
    HALVES(_mm_add, x.part[0])
#else
    float s[PART];
    memcpy(s, x.part, sizeof s);
    for (int width = PART / 2; width; width /= 2)
        for (int i = 0; i < width; i++) s[i] += s[i + width];
    return s[0];
#endif
}

INLINE Lanes load_lanes(const float *x) {
    Lanes lanes;
    for (int p = 0; p < PARTS; p++) lanes.part[p] = load(x + p * PART);
    return lanes;
}

// The sum of squares of x (width), a multiple of 16.
INLINE float sum_of_squares(const float *x, long width) {
    Lanes sum = {0};
    for (long k = 0; k < width; k += LANES)
        for (int p = 0; p < PARTS; p++) sum.part[p] = sum.part[p] + load(x + k + p * PART) * load(x + k + p * PART);
    return lane_sum(sum);
}

// The nearest integer, ties to even, of |x| < 2^22.
INLINE vec nearest(vec x) { return (x + 12582912.0f) - 12582912.0f; }

// In the lower 16 bits: the integer nearest to x * by, |x * by| < 2^15, plus `shift`. `by` is a power of two, whose product is exact,
// so that it makes no difference whether it is fused with the sum.
INLINE ivec whole(vec x, vec by, float shift) {
#if defined(__AVX512F__) || defined(__FMA__)
    return (ivec)fma_of(x, by, splat(12582912.0f + shift));
#else
    return (ivec)(x * by + splat(12582912.0f + shift));
#endif
}

// exp(x) within 2 units in the last place; x is clamped to -87..88. Cephes' polynomial.
INLINE vec exponential(vec x) {
    x = larger(splat(-87.0f), x);
    x = -larger(splat(-88.0f), -x);
    vec n = nearest(x * 1.44269504f);
    vec r = fma_of(n, splat(2.12194440e-4f), fma_of(n, splat(-0.693359375f), x));
    vec y = splat(1.9875691500e-4f);
    y = fma_of(y, r, splat(1.3981999507e-3f));
    y = fma_of(y, r, splat(8.3334519073e-3f));
    y = fma_of(y, r, splat(4.1665795894e-2f));
    y = fma_of(y, r, splat(1.6666665459e-1f));
    y = fma_of(y, r, splat(5.0000001201e-1f));
    y = fma_of(y, r * r, r) + 1.0f;
    return y * (vec)((__builtin_convertvector(n, ivec) + 127) << 23);
}

// The natural logarithm of a normal positive number, by the series of the inverse hyperbolic tangent: within 1e-13. Infinity and
// no number stay what they are.
INLINE double natural_log(double x) {
    if (!(x < INFINITY)) return x;
    union {
        double value;
        uint64_t bits;
    } part = {x};
    long exponent = (long)(part.bits >> 52) - 1023;
    part.bits = (part.bits & 0xfffffffffffffull) | 1023ull << 52;
    if (part.value > 1.4142135623730951) part.value *= 0.5, exponent++;
    const double s = (part.value - 1.0) / (part.value + 1.0), square = s * s;
    double sum = 0.0;
    for (int k = 19; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
    return 2.0 * s * sum + (double)exponent * 0.6931471805599453;
}

INLINE vec sigmoid(vec x) { return 1.0f / (1.0f + exponential(-x)); }

// The largest |x| of a row; width: a multiple of 16.
INLINE float row_peak(const float *x, long width) {
    vec peak = {0};
    for (long k = 0; k < width; k += PART) peak = larger(absolute(load(x + k)), peak);
    return lane_max(peak);
}

INLINE long smaller_of(long a, long b) { return a < b ? a : b; }
INLINE long larger_of(long a, long b) { return a > b ? a : b; }
INLINE void *aligned(long size) { return aligned_alloc(64, (size_t)(size + 63) / 64 * 64); }
INLINE float *floats(long count) { return aligned(count * 4); }
INLINE float *zeros(long count) { return memset(floats(count), 0, (size_t)count * 4); }
INLINE uint8_t *bytes(long count) { return aligned(count); }

// The smallest power of two above peak / top: by division, which is exact, |x| <= peak becomes an integer of at most top.
INLINE float power_of_two(float peak, float top, float *inverse) {
    union {
        float value;
        uint32_t bits;
    } scale = {(peak > 1e-30f ? peak : 1e-30f) / top}, other;
    int exponent = (int)(scale.bits >> 23 & 255) + 1;
    scale.bits = (uint32_t)exponent << 23;
    other.bits = (uint32_t)(254 - exponent) << 23;
    *inverse = other.value;
    return scale.value;
}

// The same for each lane.
INLINE vec powers_of_two(vec peak, float top, vec *inverse) {
    const ivec exponent = ((ivec)(larger(peak, splat(1e-30f)) / top) >> 23 & 255) + 1;
    *inverse = (vec)((254 - exponent) << 23);
    return (vec)(exponent << 23);
}

// Ask for the memory of `rows` rows of `width` floats, `ld` from one to the next, of which a processor does not foresee more than one.
INLINE void ask_for(const float *x, long rows, long width, long ld) {
    for (long m = 0; m < rows; m++)
        for (long k = 0; k < width; k += LANES) __builtin_prefetch(x + m * ld + k);
}

INLINE float inverse_rms(const float *x, long width, float eps) {
    return 1.0f / sqrtf(sum_of_squares(x, width) / (float)width + eps);
}

INLINE void scaled(const float *x, float inverse, const float *weight, long width, float *out) {
    for (long k = 0; k < width; k += PART) store(out + k, load(x + k) * inverse * load(weight + k));
}

// A square of 16 x 16 values of 32 bits, with `ld` between rows, to its transpose.
INLINE void transpose16(const int32_t *x, long ld, int32_t *out, long out_ld) {
#if defined(__AVX512F__)
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_si512(x + i * ld);
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            a[i + 2 * j] = _mm512_unpacklo_epi64(b[i + j], b[i + 2 + j]);
            a[i + 2 * j + 1] = _mm512_unpackhi_epi64(b[i + j], b[i + 2 + j]);
        }
    // a[4 i + j] holds columns j, j + 4, j + 8 and j + 12 of rows 4 i to 4 i + 3.
    for (int j = 0; j < 4; j++) {
        const __m512i low = _mm512_shuffle_i32x4(a[j], a[4 + j], 0x88), high = _mm512_shuffle_i32x4(a[j], a[4 + j], 0xdd);
        const __m512i low2 = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0x88), high2 = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0xdd);
        _mm512_storeu_si512(out + j * out_ld, _mm512_shuffle_i32x4(low, low2, 0x88));
        _mm512_storeu_si512(out + (j + 8) * out_ld, _mm512_shuffle_i32x4(low, low2, 0xdd));
        _mm512_storeu_si512(out + (j + 4) * out_ld, _mm512_shuffle_i32x4(high, high2, 0x88));
        _mm512_storeu_si512(out + (j + 12) * out_ld, _mm512_shuffle_i32x4(high, high2, 0xdd));
    }
#else
    for (long i = 0; i < 16; i++)
        for (long j = 0; j < 16; j++) out[j * out_ld + i] = x[i * ld + j];
#endif
}

// Blocks of rows whose parts of a weight's gradient are made each by itself: block b has rows first[b] to first[b + 1] - 1. Their sum is
// of float32 in their order; or, with `largest`, of float64 on a grid (`add_exactly`), and is added to what is there.
typedef struct {
    long count;
    const int64_t *first;
    double *largest;
} Blocks;

INLINE long rows_of(const Blocks *blocks, long block) { return blocks->first[block + 1] - blocks->first[block]; }

// Within 2^14 to 2^15, whose float64 are the multiples of 2^-38: to add and subtract it rounds |x| < 2^13 to one of them.
#define GRID 24576.0

// sum (count) += x (count), rounded to multiples of 2^-38. Sums of such numbers below 2^14 are exact, so their order makes no difference.
// *largest is the largest |x| so far, which bounds the sums. count: a multiple of 16.
INLINE void add_exactly(double *sum, const float *x, long count, double *largest) {
    for (long k = 0; k < count; k++) sum[k] += ((double)x[k] + GRID) - GRID;
    const double peak = row_peak(x, count);
#pragma omp critical
    if (peak > *largest) *largest = peak;
}
