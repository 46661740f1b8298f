// Muon's Newton-Schulz iteration on a batch of matrices. Its products take operands of up to 11 bits on a power-of-two scale for
// each row (8 bits are too few: rounding errors grow through the five steps to a quarter of the result), two in 32 bits, and sum
// exactly.

#include "pairs.h"

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
    pairs_transposed(at.left, m, n, at.right);
    symmetric_product(at.left, at.left_scale, at.right, m, n, at.gram, 0.0f);
    pair_rows(at.gram, m, m, m, narrow, at.left, at.left_scale);
    pairs_transposed(at.left, m, m, at.right);
    for (long k = 0; k < m * m; k += LANES) store(at.update + k, load(at.gram + k) * (s->b / s->c));
    symmetric_product(at.left, at.left_scale, at.right, m, m, at.update, 1.0f);
    for (long k = 0; k < m * m; k += LANES) store(at.update + k, load(at.update + k) * s->c);
    pair_rows(at.update, m, m, m, narrow, at.left, at.left_scale);
    pair_columns(x, m, n, n, narrow, at.right, at.right_scale);
    pair_product_once((PairLeft){at.left, at.left_scale, m / 2, 1}, (PairRight){at.right, at.right_scale, n}, m, m / 2, 0, n, x, n,
                      s->a);
}

// x (count, rows, columns) in place, rows <= columns and both multiples of 16: each matrix over its norm, then the iterations.
void orthogonalise(const Iteration *iteration, float *x) {
    const Iteration s = *iteration;
    const long square = s.rows * s.rows, whole = s.rows * s.columns, longest = larger_of(s.rows, s.columns);
#pragma omp parallel
    {
        Scratch at = {aligned(square * 4), aligned(square * 4), aligned(longest * 4), aligned(longest * 4), aligned(whole * 2), aligned(whole * 2)};
#pragma omp for schedule(dynamic)
        for (long i = 0; i < s.count; i++) {
            float *matrix = x + i * whole;
            v16 sum = {0};
            for (long k = 0; k < whole; k += LANES) sum = sum + load(matrix + k) * load(matrix + k);
            const float norm = sqrtf(lane_sum(sum)), divisor = norm > s.smallest ? norm : s.smallest;
            for (long k = 0; k < whole; k += LANES) store(matrix + k, load(matrix + k) / divisor);
            for (long step = 0; step < s.iterations; step++) one_step(&s, matrix, at);
        }
        free(at.gram), free(at.update), free(at.left_scale), free(at.right_scale), free(at.left), free(at.right);
    }
}
