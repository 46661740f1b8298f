// Vectors of 16 floats, which GCC and Clang map to the registers that the processor has, and what all kernels share.
//
// Every result is a fixed sequence of IEEE operations: sums run over 16 lanes in a stated order, products and sums are fused only
// where `fma16` says so, and no operation is left to the compiler to reorder (no -ffast-math, -ffp-contract=off). The same
// inputs give the same bytes on every processor and with any number of threads.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t i16 __attribute__((vector_size(64), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))
#define LANES 16

INLINE v16 load(const float *p) { return *(const v16 *)p; }
INLINE void store(float *p, v16 x) { *(v16 *)p = x; }
INLINE v16 splat(float x) { return (v16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
INLINE v16 absolute(v16 x) { return (v16)((i16)x & 0x7fffffff); }
INLINE v16 larger(v16 a, v16 b) { return (v16)(((i16)a & (a > b)) | ((i16)b & ~(a > b))); }

INLINE v16 fma16(v16 a, v16 b, v16 c) {
#if defined(__AVX512F__)
    return (v16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    v16 out;
    for (int i = 0; i < LANES; i += 8)
        _mm256_storeu_ps((float *)&out + i, _mm256_fmadd_ps(_mm256_loadu_ps((float *)&a + i), _mm256_loadu_ps((float *)&b + i),
                                                            _mm256_loadu_ps((float *)&c + i)));
    return out;
#else
    v16 out;
    for (int i = 0; i < LANES; i++) out[i] = fmaf(a[i], b[i], c[i]);
    return out;
#endif
}

// Sum and maximum over the lanes, halves first.
INLINE float lane_sum(v16 x) {
    float s[LANES];
    memcpy(s, &x, sizeof s);
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) s[i] += s[i + width];
    return s[0];
}

INLINE float lane_max(v16 x) {
    float s[LANES];
    memcpy(s, &x, sizeof s);
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) s[i] = s[i] > s[i + width] ? s[i] : s[i + width];
    return s[0];
}

// The nearest integer, ties to even, of |x| < 2^22.
INLINE v16 nearest(v16 x) { return (x + 12582912.0f) - 12582912.0f; }

// exp(x) within 2 units in the last place; x is clamped to -87..88. Cephes' polynomial by separate operations.
INLINE v16 exponential(v16 x) {
    x = larger(splat(-87.0f), x);
    x = -larger(splat(-88.0f), -x);
    v16 n = nearest(x * 1.44269504f);
    v16 r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    v16 y = splat(1.9875691500e-4f);
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = (y * r) * r + r + 1.0f;
    return y * (v16)((__builtin_convertvector(n, i16) + 127) << 23);
}

INLINE v16 sigmoid(v16 x) { return 1.0f / (1.0f + exponential(-x)); }

// The largest |x| of a row; width: a multiple of 16.
INLINE float row_peak(const float *x, long width) {
    v16 peak = {0};
    for (long k = 0; k < width; k += LANES) peak = larger(absolute(load(x + k)), peak);
    return lane_max(peak);
}

INLINE long smaller_of(long a, long b) { return a < b ? a : b; }
INLINE long larger_of(long a, long b) { return a > b ? a : b; }
INLINE long round_up(long n) { return (n + LANES - 1) / LANES * LANES; }
INLINE void *aligned(long size) { return aligned_alloc(64, (size_t)(size + 63) / 64 * 64); }
INLINE float *floats(long count) { return aligned(count * 4); }
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

// exp(score - peak) of the first `seen` of `width` scores, 0 for the others; their sum.
INLINE float weigh(float *scores, long seen, long width, float peak) {
    v16 sum = {0};
    const i16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (long j = 0; j < width; j += LANES) {
        v16 value = j < seen ? exponential(load(scores + j) - peak) : (v16){0};
        if (j + LANES > seen) value = (v16)((i16)value & (lane + (int32_t)j < (int32_t)seen));
        store(scores + j, value);
        sum = sum + value;
    }
    return lane_sum(sum);
}

INLINE float highest(const float *scores, long seen) {
    v16 peak = splat(-INFINITY);
    long j = 0;
    for (; j + LANES <= seen; j += LANES) peak = larger(load(scores + j), peak);
    float top = lane_max(peak);
    for (; j < seen; j++) top = scores[j] > top ? scores[j] : top;
    return top;
}

INLINE float inverse_rms(const float *x, long width, float eps) {
    v16 sum = {0};
    for (long k = 0; k < width; k += LANES) sum = sum + load(x + k) * load(x + k);
    return 1.0f / sqrtf(lane_sum(sum) / (float)width + eps);
}

INLINE void scaled(const float *x, float inverse, const float *weight, long width, float *out) {
    for (long k = 0; k < width; k += LANES) store(out + k, load(x + k) * inverse * load(weight + k));
}
