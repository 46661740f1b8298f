// Log-probabilities of given tokens over a small vocabulary, and their gradients, without a matrix of log-probabilities: the output head
// in float32, and the operations of the sampler (decode.c) in their order.

#include "attention.h"
#include "products.h"

#define ROWS 48
// Rows whose part of the head's gradient is added at a time, so that they stay in the cache.
#define BLOCK 240

// head (vocabulary, width) as (width, padded), zeros behind it. width: a multiple of 16.
static float *transposed(const float *head, long vocabulary, long width, long padded) {
    float *out = floats(width * padded);
    for (long v = 0; v < padded; v += LANES)
        for (long k = 0; k < width; k += LANES) {
            float some[LANES * LANES];
            for (long i = 0; i < LANES; i++) {
                if (v + i < vocabulary) memcpy(some + i * LANES, head + (v + i) * width + k, LANES * 4);
                else memset(some + i * LANES, 0, LANES * 4);
            }
            transpose16((const int32_t *)some, LANES, (int32_t *)(out + k * padded + v), padded);
        }
    return out;
}

// Of hidden states (rows, width) and tokens (rows): logp (rows); with `kept`, the probabilities (rows, vocabulary rounded up to 16). Without
// tokens: the logits, in `kept`.
void logps_forward(const float *hidden, const float *head, const int64_t *tokens, long rows, long width, long vocabulary,
                   float temperature, float *kept, float *logp) {
    const long padded = round_up(vocabulary);
    float *by = transposed(head, vocabulary, width, padded);
#pragma omp parallel
    {
        float *own = kept ? 0 : floats(ROWS * padded);
#pragma omp for schedule(static)
        for (long first = 0; first < rows; first += ROWS) {
            const long count = smaller_of(ROWS, rows - first);
            float *z = kept ? kept + first * padded : own;
            float_product(hidden + first * width, width, 1, by, padded, count, padded, width, z, padded, 0);
            for (long m = 0; m < count && tokens; m++, z += padded) {
                if (temperature != 1.0f)
                    for (long n = 0; n < padded; n += PART) store(z + n, load(z + n) / temperature);
                const float peak = highest(z, vocabulary), own_z = z[tokens[first + m]];
                weigh(z, vocabulary, padded, peak);
                double total = 0.0;
                for (long n = 0; n < padded; n += LANES) total += lane_sum(load_lanes(z + n));
                logp[first + m] = (float)((double)(own_z - peak) - natural_log(total));
                const float inverse = (float)(1.0 / total);
                if (kept)
                    for (long n = 0; n < padded; n += PART) store(z + n, load(z + n) * inverse);
            }
        }
        free(own);
    }
    free(by);
}

// Given the gradients of logp: dhidden (rows, width) and dhead (vocabulary, width), of float32 with `blocks` null. `kept` is overwritten by
// the gradients of logits; without tokens it has these.
void logps_backward(const float *gradient, const float *hidden, const float *head, const int64_t *tokens, long rows, long width,
                    long vocabulary, float temperature, float *kept, const Blocks *blocks, float *dhidden, void *dhead) {
    const long padded = round_up(vocabulary);
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (long first = 0; first < rows; first += ROWS) {
            const long count = smaller_of(ROWS, rows - first);
            float *block = kept + first * padded;
            for (long m = 0; m < count && tokens; m++) {
                const float given = gradient[first + m] / temperature;
                float *z = block + m * padded;
                for (long n = 0; n < padded; n += PART) store(z + n, load(z + n) * -given);
                z[tokens[first + m]] += given;
            }
            float_product(block, padded, 1, head, width, count, width, vocabulary, dhidden + first * width, width, 0);
        }
        float *own = blocks ? floats(LANES * width) : 0;
#pragma omp for schedule(static)
        for (long v = 0; v < vocabulary; v += LANES) {
            const long count = smaller_of(LANES, vocabulary - v);
            for (long first = 0; first < larger_of(rows, 1) && !blocks; first += BLOCK)
                float_product(kept + first * padded + v, 1, padded, hidden + first * width, width, count, width,
                              smaller_of(BLOCK, rows - first), (float *)dhead + v * width, width, first > 0);
            for (long block = 0; blocks && block < blocks->count; block++) {
                const long first = blocks->first[block];
                float_product(kept + first * padded + v, 1, padded, hidden + first * width, width, count, width, rows_of(blocks, block),
                              own, width, 0);
                add_exactly((double *)dhead + v * width, own, count * width, blocks->largest);
            }
        }
        free(own);
    }
}
