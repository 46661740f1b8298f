// Products of integers of up to 11 bits and a sign on power-of-two scales, two of them in 32 bits, with exact sums: where 8 bits
// are too few, at half of their speed.
#pragma once

#include "common.h"

#define PAIR_TOP 2047.0f

// More where the sum of `summed` products stays below 2^31: 8191 up to 32, 4095 up to 128.
INLINE float pair_top(long summed) { return summed <= 32 ? 8191.0f : summed <= 128 ? 4095.0f : PAIR_TOP; }

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

// Rows of x (rows, width), which `ld` floats separate, as pairs (rows, width / 2) of integers of at most `top`, and a scale for each
// row. width: a multiple of 16.
void pair_rows(const float *x, long rows, long width, long ld, float top, int32_t *pairs, float *scale);

// Columns of x (rows, width), summed over rows: pairs (rows / 2 rounded up, width) and a scale for each column.
void pair_columns(const float *x, long rows, long width, long ld, float top, int32_t *pairs, float *scale);

// Pairs of rows (rows, width / 2), as `pair_rows` leaves them, as right operands: of their transpose, (width / 2, rows) with
// `ld` between its rows, and of themselves, summed over rows, without scales, (rows / 2, width). rows: a multiple of 16.
void pairs_transposed(const int32_t *x, long rows, long width, int32_t *out, long ld);
void pairs_interleaved(const int32_t *x, long rows, long width, int32_t *out);

// out (rows, columns), with `ld` floats between rows, = or += left . right over 2 * `pairs` summands. columns: a multiple of 16.
void pair_product(PairLeft left, PairRight right, long rows, long pairs, long columns, float *out, long ld, int add);

// The same for columns first..last-1, multiples of 16, in one sum, which must fit into 32 bits: out = factor * out + left . right, or
// the product alone where the factor is 0.
void pair_product_once(PairLeft left, PairRight right, long rows, long pairs, long first, long last, float *out, long ld,
                       float factor);
