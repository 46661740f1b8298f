// Muon's Newton-Schulz iteration on a batch of matrices. Its products take operands of up to 11 bits on a power-of-two scale for
// each row (8 bits are too few: rounding errors grow through the five steps to a quarter of the result), two in 32 bits, and sum
// exactly.

#include "pairs.h"

// `count` matrices (rows, columns).
typedef struct {
    long count, rows, columns, iterations;
    float a, b, c, smallest;
} Iteration;


// The largest operand whose products sum to less than 2^31.
INLINE float largest_operand(long summed) {
    float top = 2047.0f;
    while (top * top * (float)summed >= 2147483648.0f) top = (top - 1.0f) / 2.0f;
    return top;
}

// out (n, n) = factor * out + a a^T of rows in pairs, which is symmetric: squares of 16 on and above the diagonal are computed.
static void symmetric_product(const int32_t *a, const float *scale, const int32_t *transposed, long n, long summed, float *out,
                              float factor) {
    const long pairs = summed / 2;
    const PairRight right = {transposed, scale, n};
    for (long first = 0; first < n; first += 4 * LANES) {
        const long last = smaller_of(first + 4 * LANES, n);
        pair_product_once((PairLeft){a, scale, pairs, 1}, right, first, pairs, first, last, out, n, factor);
        for (long m = first; m < last; m += LANES)
            pair_product_once((PairLeft){a + m * pairs, scale + m, pairs, 1}, right, LANES, pairs, m, last, out + m * n, n, factor);
    }
    int32_t *bits = (int32_t *)out;
    for (long m = 0; m < n; m += LANES)
        for (long k = m + LANES; k < n; k += LANES) transpose16(bits + m * n + k, n, bits + k * n + m, n);
}

typedef struct {
    float *gram, *update, *left_scale, *right_scale;
    int32_t *left, *right;
} Scratch;

// x = a x + (b G + c G G) x with G = x x^T.
static void one_step(const Iteration *s, float *x, Scratch at) {
    const long m = s->rows, n = s->columns;
    const float wide = largest_operand(n), narrow = largest_operand(m);
    pair_rows(x, m, n, n, wide, at.left, at.left_scale);
    pairs_transposed(at.left, m, n, at.right, m);
    symmetric_product(at.left, at.left_scale, at.right, m, n, at.gram, 0.0f);
    pair_rows(at.gram, m, m, m, narrow, at.left, at.left_scale);
    pairs_transposed(at.left, m, m, at.right, m);
    for (long k = 0; k < m * m; k += PART) store(at.update + k, load(at.gram + k) * (s->b / s->c));
    symmetric_product(at.left, at.left_scale, at.right, m, m, at.update, 1.0f);
    for (long k = 0; k < m * m; k += PART) store(at.update + k, load(at.update + k) * s->c);
    pair_rows(at.update, m, m, m, narrow, at.left, at.left_scale);
    pair_columns(x, m, n, n, narrow, at.right, at.right_scale);
    pair_product_once((PairLeft){at.left, at.left_scale, m / 2, 1}, (PairRight){at.right, at.right_scale, n}, m, m / 2, 0, n, x, n,
                      s->a);
}

static Scratch scratch_of(long rows, long columns) {
    const long square = rows * rows, whole = rows * columns, longest = larger_of(rows, columns);
    return (Scratch){floats(square), floats(square), floats(longest), floats(longest), aligned(whole * 2), aligned(whole * 2)};
}

static void free_scratch(Scratch at) {
    free(at.gram), free(at.update), free(at.left_scale), free(at.right_scale), free(at.left), free(at.right);
}

// A matrix over its norm, then the iterations.
static void iterate(const Iteration *s, float *matrix, Scratch at) {
    const float norm = sqrtf(sum_of_squares(matrix, s->rows * s->columns)), divisor = norm > s->smallest ? norm : s->smallest;
    for (long k = 0; k < s->rows * s->columns; k += PART) store(matrix + k, load(matrix + k) / divisor);
    for (long step = 0; step < s->iterations; step++) one_step(s, matrix, at);
}

// x (count, rows, columns) in place, rows <= columns and both multiples of 16.
void orthogonalise(const Iteration *iteration, float *x) {
    const Iteration s = *iteration;
#pragma omp parallel
    {
        const Scratch at = scratch_of(s.rows, s.columns);
#pragma omp for schedule(dynamic)
        for (long i = 0; i < s.count; i++) iterate(&s, x + i * s.rows * s.columns, at);
        free_scratch(at);
    }
}

// -- a step of the optimiser -------------------------------------------------------------------------------------------

typedef struct {
    float *weight, *momentum;
    const float *gradient;
    long rows, columns;
    // What the update is multiplied by: minus the learning rate, scaled.
    float factor;
} Stepped;

// start + weight * (end - start), from the nearer end: PyTorch's formula.
INLINE vec between(vec start, vec end, float weight) {
    const int near = weight < 0.5f;
    return fma_of(splat(near ? weight : weight - 1.0f), end - start, near ? start : end);
}

// out (columns, rows) = x (rows, columns), both multiples of 16.
static void transposed(const float *x, long rows, long columns, float *out) {
    for (long m = 0; m < rows; m += LANES)
        for (long k = 0; k < columns; k += LANES)
            transpose16((const int32_t *)(x + m * columns + k), columns, (int32_t *)(out + k * rows + m), rows);
}

// The momentum takes a share of the gradient in, `fresh`, 1 - `momentum` in float64; the weight times `kept`, plus the orthogonal matrix nearest to the momentum looked ahead, which a
// tall matrix has as its transpose. `coefficients`: their sizes are not read.
void muon_step(const Iteration *coefficients, const Stepped *matrices, float momentum, float fresh, float kept) {
#pragma omp parallel for schedule(dynamic)
    for (long i = 0; i < coefficients->count; i++) {
        const Stepped m = matrices[i];
        const long size = m.rows * m.columns;
        const int tall = m.rows > m.columns;
        Iteration s = *coefficients;
        s.rows = smaller_of(m.rows, m.columns), s.columns = larger_of(m.rows, m.columns);
        const Scratch at = scratch_of(s.rows, s.columns);
        float *ahead = floats(size), *turned = tall ? floats(size) : ahead;
        for (long k = 0; k < size; k += PART) {
            const vec gradient = load(m.gradient + k), next = between(load(m.momentum + k), gradient, fresh);
            store(m.momentum + k, next);
            store(ahead + k, between(gradient, next, momentum));
        }
        if (tall) transposed(ahead, m.rows, m.columns, turned);
        iterate(&s, turned, at);
        if (tall) transposed(turned, m.columns, m.rows, ahead);
        for (long k = 0; k < size; k += PART)
            store(m.weight + k, fma_of(load(ahead + k), splat(m.factor), load(m.weight + k) * kept));
        if (tall) free(turned);
        free(ahead), free_scratch(at);
    }
}
