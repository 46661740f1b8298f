// The parts of a decoder layer before and after attention, forward and backward, over blocks of rows that stay in the cache.
//
// Matrix products take 8-bit operands: rows of activations and of weights for outputs and input gradients; for the gradient of a
// weight, columns over blocks of at most GRADIENT_ROWS rows, whose products are added. Everything else is float32.

#include "layer.h"

#define FORWARD_ROWS 48
#define GRADIENT_ROWS 256
// Rows whose memory is asked for before they are read: those of heads end a page every few rows.
#define AHEAD 6

// A matrix w (rows, columns) as both right operands, in one buffer: its rows summed over columns (for x w^T), then its columns
// summed over rows (for g w).
typedef struct {
    Right output, input;
} Matrix;

INLINE Right right_operand(const uint8_t *buffer, long columns, long summed) {
    const float *scale = (const float *)(buffer + columns * summed);
    return (Right){(const int8_t *)buffer, scale, (const int32_t *)(scale + columns), columns};
}

INLINE long operand_size(long columns, long summed) { return columns * summed + 8 * columns; }

INLINE Matrix matrix(const uint8_t *buffer, long rows, long columns) {
    return (Matrix){right_operand(buffer, rows, columns), right_operand(buffer + operand_size(rows, columns), columns, rows)};
}

// `both`: the operand for input gradients, too.
void pack_matrix(const float *w, long rows, long columns, int both, uint8_t *buffer) {
    Matrix m = matrix(buffer, rows, columns);
    quantise_transposed(w, rows, columns, (int8_t *)m.output.bytes, (float *)m.output.scale, (int32_t *)m.output.offset);
    if (!both) return;
    float *peaks = zeros(columns);
    column_peaks(w, rows, columns, peaks);
    quantise_columns(w, rows, columns, peaks, (uint8_t *)m.input.bytes, (float *)m.input.scale, (int32_t *)m.input.offset);
    free(peaks);
}

// out (rows, columns of w^T or of w) = `base`, which may be null, + x (rows, summed) . operand, with scratch for the bytes and scales of x.
INLINE void multiply(const float *x, Right right, long rows, long summed, uint8_t *quantised, float *scale, float *out,
                     const float *base) {
    quantise_rows(x, rows, summed, quantised, scale, 0);
    product((Left){quantised, scale, summed, 4}, right, rows, summed, out, right.columns, base);
}

// -- norm --------------------------------------------------------------------------------------------------------------

// out = `base`, which may be null, + the gradient of x, given that of x * inverse * weight; dweight += its part of the weight's gradient.
INLINE void norm_gradient(const float *gradient, const float *x, float inverse, const float *weight, long width, float *dweight,
                          float *out, const float *base) {
    Lanes sum = {0};
    for (long n = 0; n < width; n += LANES)
        for (int p = 0; p < PARTS; p++) {
            const long k = n + p * PART;
            const vec both = load(gradient + k) * (load(x + k) * inverse);
            store(dweight + k, load(dweight + k) + both);
            sum.part[p] = sum.part[p] + both * load(weight + k);
        }
    const float mean = lane_sum(sum) / (float)width;
    for (long k = 0; k < width; k += PART) {
        vec value = (load(gradient + k) * load(weight + k) - load(x + k) * inverse * mean) * inverse;
        if (base) value = load(base + k) + value;
        store(out + k, value);
    }
}

// -- weight gradient ---------------------------------------------------------------------------------------------------

// Columns of a matrix (rows, width), quantised by blocks of GRADIENT_ROWS rows.
typedef struct {
    uint8_t *bytes;
    float *scale;
    int32_t *offset;
    long width;
} Columns;

static Columns columns_of(const Blocks *blocks, long width) {
    const long count = blocks->count;
    return (Columns){bytes(count * GRADIENT_ROWS * width), floats(count * width), (int32_t *)floats(count * width), width};
}

static void free_columns(Columns c) {
    free(c.bytes);
    free(c.scale);
    free(c.offset);
}

// Columns of a block with their `peaks`, which are 0 again afterwards.
INLINE void keep_columns(Columns c, long block, const float *x, long rows, int left, float *peaks) {
    quantise_columns(x, rows, c.width, peaks, c.bytes + block * GRADIENT_ROWS * c.width, c.scale + block * c.width,
                     left ? 0 : c.offset + block * c.width);
    memset(peaks, 0, (size_t)c.width * 4);
}

// out (left.width, right.width) = sum over blocks of left^T right. Called by all threads of a team.
static void weight_gradient(Columns left, Columns right, const Blocks *blocks, void *out) {
    const long chunk = 48;
    const int exact = blocks->largest != 0;
    float *own = exact ? floats(chunk * right.width) : 0;
#pragma omp for schedule(dynamic) nowait
    for (long n = 0; n < left.width; n += chunk)
        for (long block = 0; block < blocks->count; block++) {
            const long place = block * GRADIENT_ROWS, count = rows_of(blocks, block), rows = smaller_of(chunk, left.width - n);
            const Left a = {left.bytes + place * left.width + n * 4, left.scale + block * left.width + n, 4, left.width * 4};
            const Right b = {(int8_t *)right.bytes + place * right.width, right.scale + block * right.width,
                             right.offset + block * right.width, right.width};
            float *part = exact ? own : (float *)out + n * right.width;
            product(a, b, rows, (count + 3) / 4 * 4, part, right.width, block && !exact ? part : 0);
            if (exact) add_exactly((double *)out + n * right.width, part, rows * right.width, blocks->largest);
        }
    free(own);
}

// out (width) = sum over blocks of parts (blocks, width).
INLINE void add_parts(const float *parts, const Blocks *blocks, long width, void *out) {
    float *plain = out;
    if (!blocks->largest) memset(out, 0, (size_t)width * 4);
    for (long b = 0; b < blocks->count; b++) {
        if (blocks->largest) add_exactly(out, parts + b * width, width, blocks->largest);
        else
            for (long k = 0; k < width; k++) plain[k] += parts[b * width + k];
    }
}

static float *parts_of(const Blocks *blocks, long width) { return zeros(blocks->count * width); }

// -- before attention --------------------------------------------------------------------------------------------------

INLINE long rope_row(const Rope *rope, long m) {
    return m / rope->inner * rope->outer_stride + m % rope->inner * rope->inner_stride;
}

// out = cos * x + sign * sin * swapped(x), of one head of `size`; the sines are signed.
INLINE void rotate(const float *x, const float *cos, const float *sin, float sign, long size, float *restrict out) {
    const long half = size / 2;
    if (half % PART == 0) {
        for (long i = 0; i < half; i += PART) {
            const vec a = load(x + i), b = load(x + half + i);
            store(out + i, a * load(cos + i) + b * (sign * load(sin + i)));
            store(out + half + i, b * load(cos + half + i) + a * (sign * load(sin + half + i)));
        }
        return;
    }
    for (long i = 0; i < half; i++) {
        out[i] = x[i] * cos[i] + x[i + half] * (sign * sin[i]);
        out[i + half] = x[i + half] * cos[i + half] + x[i] * (sign * sin[i + half]);
    }
}

// The inverse root mean square of each of `count` heads, at most 16 at a time.
INLINE void head_inverses(const float *x, long count, long size, float eps, float *inverse) {
    float sums[LANES] = {0};
    for (long h = 0; h < count; h++) sums[h] = sum_of_squares(x + h * size, size);
    for (long h = 0; h < LANES; h++) inverse[h] = 1.0f / sqrtf(sums[h] / (float)size + eps);
}

// A head of queries or keys that is kept in registers, where its size is a constant.
#define BY_SIZE(CALL, size)                                                                                                      \
    if (size == 32) CALL(32);                                                                                                    \
    else if (size == 64) CALL(64);                                                                                               \
    else CALL(size);

// The heads of a row (split) normalised, where they have a norm, and rotated.
INLINE void heads_forward(const float *row, const float *qk_norm, const float *cos, const float *sin, long size, long split, float eps,
                          float *qk) {
    float inverses[LANES], head[size];
    for (long k = 0; k < split; k += size) {
        const long place = k / size % LANES;
        if (qk_norm && !place) head_inverses(row + k, smaller_of(LANES, (split - k) / size), size, eps, inverses);
        if (qk_norm) scaled(row + k, inverses[place], qk_norm + k, size, head);
        rotate(qk_norm ? head : row + k, cos, sin, 1.0f, size, qk + k);
    }
}

// The gradient of a row's heads before `heads_forward`, which were `row`; dqk_norm += its part of that of the norm.
INLINE void heads_gradient(const float *given, const float *row, const float *qk_norm, const float *cos, const float *sin, long size,
                           long split, float eps, float *dqk_norm, float *out) {
    float inverses[LANES], head[size];
    for (long k = 0; k < split; k += size) {
        const long place = k / size % LANES;
        rotate(given + k, cos, sin, -1.0f, size, qk_norm ? head : out + k);
        if (qk_norm && !place) head_inverses(row + k, smaller_of(LANES, (split - k) / size), size, eps, inverses);
        if (qk_norm) norm_gradient(head, row + k, inverses[place], qk_norm + k, size, dqk_norm + k, out + k, 0);
    }
}

void before_forward(const Heads *heads, const Rope *rope, const float *x, const float *norm, const uint8_t *qkv, const float *bias,
                    const float *qk_norm, float *inverse, float *raw, float *qk, float *v) {
    const Heads h = *heads;
    const long columns = (h.rotated + h.values) * h.size, split = h.rotated * h.size;
    const Matrix w = matrix(qkv, columns, h.width);
#pragma omp parallel
    {
        float *normed = floats(FORWARD_ROWS * h.width), *scale = floats(FORWARD_ROWS), *own = floats(FORWARD_ROWS * columns);
        uint8_t *quantised = bytes(FORWARD_ROWS * h.width);
#pragma omp for schedule(static)
        for (long first = 0; first < h.rows; first += FORWARD_ROWS) {
            const long count = smaller_of(FORWARD_ROWS, h.rows - first);
            float *out = raw ? raw + first * columns : own;
            for (long m = 0; m < count; m++) {
                const float *row = x + (first + m) * h.width;
                ask_for(x + smaller_of(first + m + AHEAD, h.rows - 1) * h.width, 1, h.width, 0);
                inverse[first + m] = inverse_rms(row, h.width, h.eps);
                scaled(row, inverse[first + m], norm, h.width, normed + m * h.width);
            }
            multiply(normed, w.output, count, h.width, quantised, scale, out, 0);
            for (long m = 0; m < count; m++) {
                float *row = out + m * columns;
                const long place = rope_row(rope, first + m);
                if (bias)
                    for (long k = 0; k < columns; k++) row[k] += bias[k];
#define FORWARD(SIZE) heads_forward(row, qk_norm, rope->cos + place, rope->sin + place, SIZE, split, h.eps, qk + (first + m) * split)
                BY_SIZE(FORWARD, h.size)
                memcpy(v + (first + m) * (columns - split), row + split, (size_t)(columns - split) * 4);
            }
        }
        free(normed), free(scale), free(own), free(quantised);
    }
}

// The panels of an operand that hold its first `columns` columns.
INLINE Right first_panels(Right right, long columns) {
    const long whole = (columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS * PANEL_COLUMNS;
    right.columns = smaller_of(whole, right.columns);
    return right;
}

// Without `raw`, queries and keys before their norm are computed again: the same bytes, since sums are exact. dx has `residual` added,
// unless that is null.
void before_backward(const Heads *heads, const Rope *rope, const float *x, const float *norm, const uint8_t *qkv, const float *bias,
                     const float *qk_norm, const float *inverse, const float *raw, const float *dqk, const float *dv,
                     const float *residual, const Blocks *blocks, float *dx, void *dnorm, void *dqkv, void *dbias, void *dqk_norm) {
    const Heads h = *heads;
    const long columns = (h.rotated + h.values) * h.size, split = h.rotated * h.size;
    const Matrix w = matrix(qkv, columns, h.width);
    const Right again = first_panels(w.output, split);
    const Columns left = columns_of(blocks, columns), right = columns_of(blocks, h.width);
    float *norm_parts = parts_of(blocks, h.width), *bias_parts = parts_of(blocks, columns), *qk_parts = parts_of(blocks, split);
#pragma omp parallel
    {
        float *gradient = floats(GRADIENT_ROWS * columns), *scale = floats(GRADIENT_ROWS), *wide = floats(GRADIENT_ROWS * h.width);
        float *of_left = zeros(columns), *of_right = zeros(h.width);
        float *own = floats(FORWARD_ROWS * again.columns), *own_scale = floats(FORWARD_ROWS);
        uint8_t *quantised = bytes(GRADIENT_ROWS * columns), *own_quantised = bytes(FORWARD_ROWS * h.width);
#pragma omp for schedule(dynamic)
        for (long block = 0; block < blocks->count; block++) {
            const long first = blocks->first[block], count = rows_of(blocks, block);
            for (long part = 0; part < count; part += FORWARD_ROWS) {
                const long some = smaller_of(FORWARD_ROWS, count - part);
                for (long m = part; m < part + some; m++) {
                    ask_for(x + smaller_of(first + m + AHEAD, h.rows - 1) * h.width, 1, h.width, 0);
                    scaled(x + (first + m) * h.width, inverse[first + m], norm, h.width, wide + m * h.width);
                }
                if (qk_norm && !raw) {
                    quantise_rows(wide + part * h.width, some, h.width, own_quantised, own_scale, of_right);
                    product((Left){own_quantised, own_scale, h.width, 4}, again, some, h.width, own, again.columns, 0);
                } else column_peaks(wide + part * h.width, some, h.width, of_right);
                for (long m = part; m < part + some; m++) {
                    float *row = gradient + m * columns, *before = own + (m - part) * again.columns;
                    const long place = rope_row(rope, first + m), ahead = smaller_of(first + m + AHEAD, h.rows - 1);
                    ask_for(dqk + ahead * split, 1, split, 0), ask_for(dv + ahead * (columns - split), 1, columns - split, 0);
                    if (raw) before = (float *)raw + (first + m) * columns;
                    else if (qk_norm && bias)
                        for (long k = 0; k < split; k++) before[k] += bias[k];
#define GRADIENT(SIZE)                                                                                                           \
    heads_gradient(dqk + (first + m) * split, before, qk_norm, rope->cos + place, rope->sin + place, SIZE, split, h.eps,         \
                   qk_parts + block * split, row)
                    BY_SIZE(GRADIENT, h.size)
                    memcpy(row + split, dv + (first + m) * (columns - split), (size_t)(columns - split) * 4);
                    if (dbias)
                        for (long k = 0; k < columns; k++) bias_parts[block * columns + k] += row[k];
                    quantise_rows(row, 1, columns, quantised + m * columns, scale + m, of_left);
                }
            }
            keep_columns(left, block, gradient, count, 1, of_left);
            keep_columns(right, block, wide, count, 0, of_right);
            product((Left){quantised, scale, columns, 4}, w.input, count, columns, wide, h.width, 0);
            for (long m = 0; m < count; m++)
                norm_gradient(wide + m * h.width, x + (first + m) * h.width, inverse[first + m], norm, h.width,
                              norm_parts + block * h.width, dx + (first + m) * h.width,
                              residual ? residual + (first + m) * h.width : 0);
        }
        weight_gradient(left, right, blocks, dqkv);
        free(gradient), free(scale), free(wide), free(of_left), free(of_right), free(quantised);
        free(own), free(own_scale), free(own_quantised);
    }
    add_parts(norm_parts, blocks, h.width, dnorm);
    if (dbias) add_parts(bias_parts, blocks, columns, dbias);
    if (dqk_norm) add_parts(qk_parts, blocks, split, dqk_norm);
    free_columns(left), free_columns(right), free(norm_parts), free(bias_parts), free(qk_parts);
}

// -- after attention ---------------------------------------------------------------------------------------------------

INLINE void gated(const float *gate_up, long hidden, float *out) {
    for (long k = 0; k < hidden; k += PART) {
        vec gate = load(gate_up + k);
        store(out + k, gate * sigmoid(gate) * load(gate_up + hidden + k));
    }
}

// Given d(gate * sigmoid(gate) * up): that value, and the gradients of gate and up.
INLINE void gated_gradient(const float *gradient, const float *gate_up, long hidden, float *value, float *out) {
    for (long k = 0; k < hidden; k += PART) {
        vec gate = load(gate_up + k), up = load(gate_up + hidden + k), s = sigmoid(gate), silu = gate * s, g = load(gradient + k);
        store(value + k, silu * up);
        store(out + k, g * up * (s + silu * (1.0f - s)));
        store(out + hidden + k, g * silu);
    }
}

void after_forward(const Mlp *mlp, const float *x, const float *mixed, const float *norm, const uint8_t *out, const uint8_t *gate_up,
                   const uint8_t *down, float *inverse, float *middle, float *gates, float *y) {
    const Mlp s = *mlp;
    const Matrix w_out = matrix(out, s.width, s.mixed), w_up = matrix(gate_up, 2 * s.hidden, s.width),
                 w_down = matrix(down, s.width, s.hidden);
    const long widest = larger_of(s.hidden, larger_of(s.width, s.mixed));
#pragma omp parallel
    {
        float *own = gates ? 0 : floats(FORWARD_ROWS * 2 * s.hidden), *normed = floats(FORWARD_ROWS * widest);
        float *scale = floats(FORWARD_ROWS);
        uint8_t *quantised = bytes(FORWARD_ROWS * widest);
#pragma omp for schedule(static)
        for (long first = 0; first < s.rows; first += FORWARD_ROWS) {
            const long count = smaller_of(FORWARD_ROWS, s.rows - first);
            float *wide = gates ? gates + first * 2 * s.hidden : own, *last = y + first * s.width;
            float *place = middle ? middle + first * s.width : last;
            ask_for(x + first * s.width, count, s.width, s.width);
            multiply(mixed + first * s.mixed, w_out.output, count, s.mixed, quantised, scale, place, x + first * s.width);
            for (long m = 0; m < count; m++) {
                const float *row = place + m * s.width;
                const float by = inverse_rms(row, s.width, s.eps);
                if (inverse) inverse[first + m] = by;
                scaled(row, by, norm, s.width, normed + m * s.width);
            }
            multiply(normed, w_up.output, count, s.width, quantised, scale, wide, 0);
            for (long m = 0; m < count; m++) gated(wide + m * 2 * s.hidden, s.hidden, normed + m * s.hidden);
            multiply(normed, w_down.output, count, s.hidden, quantised, scale, last, place);
        }
        free(own), free(normed), free(scale), free(quantised);
    }
}

// Without `gates` they are computed again: the same bytes, since sums are exact.
void after_backward(const Mlp *mlp, const float *dy, const float *mixed, const float *norm, const uint8_t *out,
                    const uint8_t *gate_up, const uint8_t *down, const float *inverse, const float *middle, const float *gates,
                    const Blocks *blocks, float *dx, float *dmixed, void *dnorm, void *dout, void *dgate_up, void *ddown) {
    const Mlp s = *mlp;
    const Matrix w_out = matrix(out, s.width, s.mixed), w_up = matrix(gate_up, 2 * s.hidden, s.width),
                 w_down = matrix(down, s.width, s.hidden);
    const Columns of_y = columns_of(blocks, s.width), of_gated = columns_of(blocks, s.hidden),
                  of_gates = columns_of(blocks, 2 * s.hidden), of_normed = columns_of(blocks, s.width),
                  of_x = columns_of(blocks, s.width), of_mixed = columns_of(blocks, s.mixed);
    float *norm_parts = parts_of(blocks, s.width);
    const long widest = larger_of(s.width, 2 * s.hidden);
#pragma omp parallel
    {
        float *wide = floats(GRADIENT_ROWS * 2 * s.hidden), *half = floats(GRADIENT_ROWS * s.hidden);
        float *narrow = floats(GRADIENT_ROWS * s.width), *scale = floats(GRADIENT_ROWS), *gates_scale = floats(GRADIENT_ROWS);
        float *own = gates ? 0 : floats(FORWARD_ROWS * 2 * s.hidden), *own_scale = floats(FORWARD_ROWS);
        float *peaks = zeros(widest), *gated_peaks = zeros(s.hidden), *mixed_peaks = zeros(s.mixed);
        uint8_t *quantised = bytes(GRADIENT_ROWS * widest), *own_quantised = bytes(FORWARD_ROWS * s.width);
        uint8_t *of_given = bytes(GRADIENT_ROWS * s.width);
#pragma omp for schedule(dynamic)
        for (long block = 0; block < blocks->count; block++) {
            const long first = blocks->first[block], count = rows_of(blocks, block);
            const float *given = dy + first * s.width, *row = middle + first * s.width;
            float *place = dx + first * s.width;
            quantise_rows(given, count, s.width, of_given, scale, peaks);
            keep_columns(of_y, block, given, count, 1, peaks);
            for (long m = 0; m < count; m++) {
                scaled(row + m * s.width, inverse[first + m], norm, s.width, narrow + m * s.width);
                column_peaks(narrow + m * s.width, 1, s.width, peaks);
            }
            keep_columns(of_normed, block, narrow, count, 0, peaks);
            for (long part = 0; part < count; part += FORWARD_ROWS) {
                const long some = smaller_of(FORWARD_ROWS, count - part);
                const float *kept = own ? own : gates + (first + part) * 2 * s.hidden;
                if (own) multiply(narrow + part * s.width, w_up.output, some, s.width, own_quantised, own_scale, own, 0);
                product((Left){of_given + part * s.width, scale + part, s.width, 4}, w_down.input, some, s.width,
                        half + part * s.hidden, s.hidden, 0);
                for (long m = part; m < part + some; m++) {
                    float *value = half + m * s.hidden, *gradients = wide + m * 2 * s.hidden;
                    gated_gradient(value, kept + (m - part) * 2 * s.hidden, s.hidden, value, gradients);
                    column_peaks(value, 1, s.hidden, gated_peaks);
                    quantise_rows(gradients, 1, 2 * s.hidden, quantised + m * 2 * s.hidden, gates_scale + m, peaks);
                }
            }
            keep_columns(of_gated, block, half, count, 0, gated_peaks);
            keep_columns(of_gates, block, wide, count, 1, peaks);
            product((Left){quantised, gates_scale, 2 * s.hidden, 4}, w_up.input, count, 2 * s.hidden, narrow, s.width, 0);
            for (long m = 0; m < count; m++) {
                norm_gradient(narrow + m * s.width, row + m * s.width, inverse[first + m], norm, s.width,
                              norm_parts + block * s.width, place + m * s.width, given + m * s.width);
                quantise_rows(place + m * s.width, 1, s.width, of_given + m * s.width, scale + m, peaks);
            }
            keep_columns(of_x, block, place, count, 1, peaks);
            column_peaks(mixed + first * s.mixed, count, s.mixed, mixed_peaks);
            keep_columns(of_mixed, block, mixed + first * s.mixed, count, 0, mixed_peaks);
            product((Left){of_given, scale, s.width, 4}, w_out.input, count, s.width, dmixed + first * s.mixed, s.mixed, 0);
        }
        weight_gradient(of_y, of_gated, blocks, ddown);
        weight_gradient(of_x, of_mixed, blocks, dout);
        weight_gradient(of_gates, of_normed, blocks, dgate_up);
        free(wide), free(half), free(narrow), free(scale), free(gates_scale), free(own), free(own_scale), free(peaks), free(gated_peaks);
        free(mixed_peaks), free(quantised), free(own_quantised), free(of_given);
    }
    add_parts(norm_parts, blocks, s.width, dnorm);
    free_columns(of_y), free_columns(of_gated), free_columns(of_gates), free_columns(of_normed), free_columns(of_x);
    free_columns(of_mixed), free(norm_parts);
}

// -- the norm behind the last layer ------------------------------------------------------------------------------------

// out (rows, width) of x (rows, width), and `inverse` (rows) for the gradient.
void norm_forward(const float *x, const float *weight, long rows, long width, float eps, float *inverse, float *out) {
    for (long m = 0; m < rows; m++) {
        inverse[m] = inverse_rms(x + m * width, width, eps);
        scaled(x + m * width, inverse[m], weight, width, out + m * width);
    }
}

void norm_backward(const float *gradient, const float *x, const float *inverse, const float *weight, long width, const Blocks *blocks,
                   float *dx, void *dweight) {
    float *parts = parts_of(blocks, width);
    for (long block = 0; block < blocks->count; block++)
        for (long m = blocks->first[block]; m < blocks->first[block + 1]; m++)
            norm_gradient(gradient + m * width, x + m * width, inverse[m], weight, width, parts + block * width, dx + m * width, 0);
    add_parts(parts, blocks, width, dweight);
    free(parts);
}
