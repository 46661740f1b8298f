// The forward parts of a decoder layer, which training and decoding share.
#pragma once

#include "products.h"

// Row m has the cosines and sines at (m / inner) * outer_stride + (m % inner) * inner_stride.
typedef struct {
    const float *cos, *sin;
    long inner, outer_stride, inner_stride;
} Rope;

typedef struct {
    long rows, width, rotated, values, size;
    float eps;
} Heads;

typedef struct {
    long rows, width, mixed, hidden;
    float eps;
} Mlp;

// qk (rows, rotated, size) and v (rows, values, size) of x (rows, width). `inverse` (rows) and `raw` keep what the gradient needs;
// bias, qk_norm and raw may be null.
void before_forward(const Heads *heads, const Rope *rope, const float *x, const float *norm, const uint8_t *qkv, const float *bias,
                    const float *qk_norm, float *inverse, float *raw, float *qk, float *v);

// y (rows, width) of the layer's input x and its attention output `mixed`. inverse, middle and gates, which keep what the
// gradient needs, may be null.
void after_forward(const Mlp *mlp, const float *x, const float *mixed, const float *norm, const uint8_t *out, const uint8_t *gate_up,
                   const uint8_t *down, float *inverse, float *middle, float *gates, float *y);
