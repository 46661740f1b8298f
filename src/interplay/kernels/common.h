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

// a where a > b, else b.
INLINE v16 larger(v16 a, v16 b) {
#if defined(__AVX512F__)
    return (v16)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return (v16)(((i16)a & (a > b)) | ((i16)b & ~(a > b)));
#endif
}

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
#if defined(__AVX512F__)
#define HALVES(combine)                                                                                                          \
    __m256 eight = combine##256_ps(_mm512_castps512_ps256((__m512)x),                                                            \
                                   _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd((__m512)x), 1)));                    \
    __m128 four = combine##_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));                                  \
    __m128 two = combine##_ps(four, _mm_movehl_ps(four, four));                                                                  \
    return _mm_cvtss_f32(combine##_ss(two, _mm_shuffle_ps(two, two, 1)));
#define _mm_add256_ps _mm256_add_ps
#define _mm_max256_ps _mm256_max_ps
INLINE float lane_sum(v16 x) { HALVES(_mm_add) }
INLINE float lane_max(v16 x) { HALVES(_mm_max) }
#else
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
#endif

// The nearest integer, ties to even, of |x| < 2^22.
INLINE v16 nearest(v16 x) { return (x + 12582912.0f) - 12582912.0f; }

// exp(x) within 2 units in the last place; x is clamped to -87..88. Cephes' polynomial.
INLINE v16 exponential(v16 x) {
    x = larger(splat(-87.0f), x);
    x = -larger(splat(-88.0f), -x);
    v16 n = nearest(x * 1.44269504f);
    v16 r = fma16(n, splat(2.12194440e-4f), fma16(n, splat(-0.693359375f), x));
    v16 y = splat(1.9875691500e-4f);
    y = fma16(y, r, splat(1.3981999507e-3f));
    y = fma16(y, r, splat(8.3334519073e-3f));
    y = fma16(y, r, splat(4.1665795894e-2f));
    y = fma16(y, r, splat(1.6666665459e-1f));
    y = fma16(y, r, splat(5.0000001201e-1f));
    y = fma16(y, r * r, r) + 1.0f;
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
INLINE v16 powers_of_two(v16 peak, float top, v16 *inverse) {
    const i16 exponent = ((i16)(larger(peak, splat(1e-30f)) / top) >> 23 & 255) + 1;
    *inverse = (v16)((254 - exponent) << 23);
    return (v16)(exponent << 23);
}

INLINE float inverse_rms(const float *x, long width, float eps) {
    v16 sum = {0};
    for (long k = 0; k < width; k += LANES) sum = sum + load(x + k) * load(x + k);
    return 1.0f / sqrtf(lane_sum(sum) / (float)width + eps);
}

INLINE void scaled(const float *x, float inverse, const float *weight, long width, float *out) {
    for (long k = 0; k < width; k += LANES) store(out + k, load(x + k) * inverse * load(weight + k));
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
