// Attention of one new token of each sample over its prompt, which a group of samples shares, and its own tokens, in float32.

#include "attention.h"
#include "products.h"

typedef struct {
    long groups, samples, heads, shared, size;
    // Padded length of prompts, a multiple of 16; room for own keys, also; own keys, the present one included.
    long prompt, capacity, steps;
} Decode;

// Keys and values of the present token take their place among the sample's own: keys (size, capacity), values (capacity, size).
INLINE void append(const Decode *a, const float *k, const float *v, float *keys, float *values) {
    for (long d = 0; d < a->size; d++) keys[d * a->capacity + a->steps - 1] = k[d];
    memcpy(values + (a->steps - 1) * a->size, v, (size_t)a->size * 4);
}

// Attention of one token a sample over its prompt, which the samples of a group share, and its own tokens. qk (groups, samples,
// heads + shared, size), v (groups, samples, shared, size); of each group and head of keys, the prompt's keys (size, prompt) and
// values (prompt, size), and of each sample its own; lengths (groups) of prompts; mixed (groups, samples, heads * size).
void decode_attention(const Decode *shape, const int64_t *lengths, const float *qk, const float *v, const float *prompt_keys,
                      const float *prompt_values, float *keys, float *values, float *mixed) {
    const Decode a = *shape;
    const long group = a.heads / a.shared, rows = a.samples * group, stride = (a.heads + a.shared) * a.size;
    const float scale = 1.0f / sqrtf((float)a.size);
#pragma omp parallel
    {
        const long widest = round_up(a.prompt) + round_up(a.steps);
        float *queries = floats(rows * a.size), *scores = floats(rows * widest), *out = floats(rows * a.size);
#pragma omp for schedule(dynamic)
        for (long item = 0; item < a.groups * a.shared; item++) {
            const long g = item / a.shared, head = item % a.shared, length = lengths[g], before = round_up(length);
            const long width = before + round_up(a.steps);
            const float *given = qk + g * a.samples * stride, *shared_keys = prompt_keys + item * a.size * a.prompt;
            for (long s = 0; s < a.samples; s++) {
                const long own = (item * a.samples + s) * a.capacity * a.size;
                append(&a, given + s * stride + (a.heads + head) * a.size, v + ((g * a.samples + s) * a.shared + head) * a.size,
                       keys + own, values + own);
                const float *own_queries = given + s * stride + head * group * a.size;
                for (long d = 0; d < group * a.size; d++) queries[s * group * a.size + d] = own_queries[d] * scale;
                float_product(queries + s * group * a.size, a.size, 1, keys + own, a.capacity, group, width - before, a.size,
                              scores + s * group * width + before, width, 0);
            }
            float_product(queries, a.size, 1, shared_keys, a.prompt, rows, before, a.size, scores, width, 0);
            for (long r = 0; r < rows; r++) {
                float *row = scores + r * width;
                const float first = highest(row, length), then = highest(row + before, a.steps), peak = first > then ? first : then;
                const float sum = weigh(row, length, before, peak) + weigh(row + before, a.steps, width - before, peak);
                for (long j = 0; j < width; j += LANES) store(row + j, load(row + j) / sum);
            }
            float_product(scores, width, 1, prompt_values + item * a.prompt * a.size, a.size, rows, a.size, length, out, a.size, 0);
            for (long s = 0; s < a.samples; s++) {
                float_product(scores + s * group * width + before, width, 1, values + (item * a.samples + s) * a.capacity * a.size,
                              a.size, group, a.size, a.steps, out + s * group * a.size, a.size, 1);
                memcpy(mixed + ((g * a.samples + s) * a.heads + head * group) * a.size, out + s * group * a.size,
                       (size_t)(group * a.size) * 4);
            }
        }
        free(queries), free(scores), free(out);
    }
}
