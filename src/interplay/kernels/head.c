// The output head over a large vocabulary, in products of integers of 11 bits and more, CHUNK tokens of the vocabulary at a time:
// 8 bits would lose the gradients of all but the likeliest tokens. And the gradient of the embedding.

#include "pairs.h"

// Also the summands that 11 bits allow; each chunk of a row of gradients has a scale of its own.
#define CHUNK 512
#define ROWS 128

// Columns of x (rows, width) as a right operand; rows: any number.
static PairRight columns_of(const float *x, long rows, long width) {
    int32_t *pairs = aligned((rows + 1) / 2 * width * 4);
    float *scale = floats(width);
    pair_columns(x, rows, width, width, PAIR_TOP, pairs, scale);
    return (PairRight){pairs, scale, width};
}

static void free_right(PairRight right) { free((void *)right.pairs), free((void *)right.scale); }

// logits (rows, vocabulary) = hidden (rows, width) times weight (vocabulary, width) transposed. Width and vocabulary: multiples of 16.
void head_forward(const float *hidden, const float *weight, long rows, long width, long vocabulary, float *logits) {
    int32_t *left = aligned(rows * width * 2);
    float *left_scale = floats(rows);
    pair_rows(hidden, rows, width, width, pair_top(width), left, left_scale);
#pragma omp parallel
    {
        int32_t *pairs = aligned(CHUNK * width * 2), *transposed = aligned(CHUNK * width * 2);
        float scale[CHUNK];
#pragma omp for schedule(dynamic)
        for (long n = 0; n < vocabulary; n += CHUNK) {
            const long count = smaller_of(CHUNK, vocabulary - n);
            pair_rows(weight + n * width, count, width, width, pair_top(width), pairs, scale);
            pairs_transposed(pairs, count, width, transposed, count);
            pair_product((PairLeft){left, left_scale, width / 2, 1}, (PairRight){transposed, scale, count}, rows, width / 2, count,
                         logits + n, vocabulary, 0);
        }
        free(pairs), free(transposed);
    }
    free(left), free(left_scale);
}

// dweight (vocabulary, width): columns of the gradient, of a chunk, times columns of hidden.
static void weight_gradient(const float *gradient, const float *hidden, long rows, long width, long vocabulary, float *dweight) {
    const PairRight right = columns_of(hidden, rows, width);
#pragma omp parallel
    {
        int32_t *left = aligned((rows + 1) / 2 * CHUNK * 4);
        float scale[CHUNK];
#pragma omp for schedule(dynamic)
        for (long n = 0; n < vocabulary; n += CHUNK) {
            const long count = smaller_of(CHUNK, vocabulary - n);
            pair_columns(gradient + n, rows, count, vocabulary, PAIR_TOP, left, scale);
            pair_product((PairLeft){left, scale, 1, count}, right, count, (rows + 1) / 2, width, dweight + n * width, width, 0);
        }
        free(left);
    }
    free_right(right);
}

// dhidden (rows, width): rows of the gradient times columns of the weight, chunks in order.
static void hidden_gradient(const float *gradient, const float *weight, long rows, long width, long vocabulary, float *dhidden) {
    const long chunks = (vocabulary + CHUNK - 1) / CHUNK;
    PairRight *right = aligned(chunks * (long)sizeof(PairRight));
#pragma omp parallel
    {
        int32_t *left = aligned(ROWS * CHUNK * 2);
        float scale[ROWS];
#pragma omp for schedule(static)
        for (long c = 0; c < chunks; c++)
            right[c] = columns_of(weight + c * CHUNK * width, smaller_of(CHUNK, vocabulary - c * CHUNK), width);
#pragma omp for schedule(dynamic)
        for (long m = 0; m < rows; m += ROWS)
            for (long c = 0; c < chunks; c++) {
                const long count = smaller_of(CHUNK, vocabulary - c * CHUNK), some = smaller_of(ROWS, rows - m);
                pair_rows(gradient + m * vocabulary + c * CHUNK, some, count, vocabulary, PAIR_TOP, left, scale);
                pair_product((PairLeft){left, scale, count / 2, 1}, right[c], some, count / 2, width, dhidden + m * width, width,
                             c > 0);
            }
        free(left);
    }
    for (long c = 0; c < chunks; c++) free_right(right[c]);
    free(right);
}

void head_backward(const float *gradient, const float *hidden, const float *weight, long rows, long width, long vocabulary,
                   float *dhidden, float *dweight) {
    hidden_gradient(gradient, weight, rows, width, vocabulary, dhidden);
    weight_gradient(gradient, hidden, rows, width, vocabulary, dweight);
}

// dtable (vocabulary, width) = the sum of the rows of dx (rows, width) of each token, in their order; with `largest` exactly, added to what
// is there. width: a multiple of 16.
void embedding_backward(const float *dx, const int64_t *ids, long rows, long width, long vocabulary, double *largest, void *dtable) {
    if (!largest) memset(dtable, 0, (size_t)(vocabulary * width) * 4);
    for (long m = 0; m < rows; m++, dx += width) {
        float *out = (float *)dtable + ids[m] * width;
        if (largest) add_exactly((double *)dtable + ids[m] * width, dx, width, largest);
        else
            for (long k = 0; k < width; k += PART) store(out + k, load(out + k) + load(dx + k));
    }
}
