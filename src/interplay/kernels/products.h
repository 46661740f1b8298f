// Products of 8-bit integers on power-of-two scales with exact 32-bit sums, and float32 products with a fixed order of sums.
#pragma once

#include "common.h"

// The left operand of a product: rows of unsigned bytes a + 128, four along the summed dimension side by side. Element (m, k) lies
// at (m * row + k / 4 * step + k % 4). `scale` has one value a row.
typedef struct {
    const uint8_t *bytes;
    const float *scale;
    long row, step;
} Left;

// Columns of a panel of a right operand, which lie together: with a whole row between two groups of bytes, every group would lie in a
// page of its own.
#define PANEL_COLUMNS 64

// The right operand: panels of signed bytes [summed / 4][at most PANEL_COLUMNS columns][4], a scale for each column, and 128 times the sum of
// its bytes, which takes back the offset of the left operand.
typedef struct {
    const int8_t *bytes;
    const float *scale;
    const int32_t *offset;
    long columns;
} Right;

// Rows x (rows, width) as a left operand: bytes (rows, width) and scale (rows). width: a multiple of 16. With `peaks` (width), which may
// be null: the larger of them and of |x| in each column.
void quantise_rows(const float *x, long rows, long width, uint8_t *bytes, float *scale, float *peaks);

// The larger of peaks (width) and |x| in each column of x (rows, width).
void column_peaks(const float *x, long rows, long width, float *peaks);

// Columns of x (rows, width), the largest |x| of which are `peaks` (width), summed over rows, and scale (width). Without `offset`: as a
// left operand [rows / 4 rounded up][width][4] (row 4, step 4 * width); else as a right operand with offset (width).
void quantise_columns(const float *x, long rows, long width, const float *peaks, uint8_t *bytes, float *scale, int32_t *offset);

// Rows of w (rows, width) as the columns of a right operand with scale and offset (rows).
void quantise_transposed(const float *w, long rows, long width, int8_t *bytes, float *scale, int32_t *offset);

// out (rows, columns), with `ld` floats between rows, = left (rows, summed) . right (summed, columns); plus `base`, where it is not
// null, which is `out` or lies as that does.
void product(Left left, Right right, long rows, long summed, float *out, long ld, const float *base);

// out (rows, columns) = or += sum over t of a[r * row + t * step] * b[t * ldb + c] in order of t, fused. columns: multiple of 16.
void float_product(const float *a, long row, long step, const float *b, long ldb, long rows, long columns, long summed, float *out,
                   long ld, int add);
