// Products of integers of up to 11 bits and a sign on power-of-two scales, two of them in 32 bits, with exact sums: where 8 bits
// are too few, at half of their speed.
#pragma once

#include "common.h"

#define PAIR_TOP 2047.0f

// Pairs whose sum fits into 32 bits: 2047 * 2047 * 512 < 2^31. Longer sums are cut there, and the parts added in order.
#define EXACT_PAIRS 256

// The left operand: pairs of neighbours along the summed dimension; pair k of row m lies at m * row + k * step. A scale a row.
typedef struct {
    const int32_t *pairs;
    const float *scale;
    long row, step;
} PairLeft;

// The right operand: pair k of column n at k * ld + n. A scale a column.
typedef struct {
    const int32_t *pairs;
    const float *scale;
    long ld;
} PairRight;

// Rows of x (rows, width), which `ld` floats separate, as pairs (rows, width / 2) and a scale for each row. width: a multiple of 16.
void pair_rows(const float *x, long rows, long width, long ld, int32_t *pairs, float *scale);

// Columns of x (rows, width), summed over rows: pairs (rows / 2 rounded up, width) and a scale for each column.
void pair_columns(const float *x, long rows, long width, long ld, int32_t *pairs, float *scale);

// Pairs of rows (rows, width / 2), as `pair_rows` leaves them, as right operands: of their transpose, (width / 2, rows), and of
// themselves, summed over rows, without scales, (rows / 2, width). rows: a multiple of 16.
void pairs_transposed(const int32_t *x, long rows, long width, int32_t *out);
void pairs_interleaved(const int32_t *x, long rows, long width, int32_t *out);

// out (rows, columns), with `ld` floats between rows, = or += left . right over 2 * `pairs` summands. columns: a multiple of 16.
void pair_product(PairLeft left, PairRight right, long rows, long pairs, long columns, float *out, long ld, int add);

// sum + a . b of the pair a and 16 pairs b.
INLINE i16 pair_products(i16 sum, int32_t a, i16 b) {
#if defined(__AVX512VNNI__)
    return (i16)_mm512_dpwssd_epi32((__m512i)sum, _mm512_set1_epi32(a), (__m512i)b);
#elif defined(__AVX512BW__)
    return sum + (i16)_mm512_madd_epi16(_mm512_set1_epi32(a), (__m512i)b);
#elif defined(__AVX2__)
    i16 out;
    for (int i = 0; i < LANES; i += 8) {
        __m256i part = _mm256_loadu_si256((const __m256i *)((const int32_t *)&b + i));
        _mm256_storeu_si256((__m256i *)((int32_t *)&out + i), _mm256_madd_epi16(_mm256_set1_epi32(a), part));
    }
    return sum + out;
#else
    return sum + (int16_t)a * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
}
