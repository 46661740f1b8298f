// Causal attention over runs of rows in float32: each run is a sequence, or the part of one that follows a prefix that lies
// elsewhere and may be shared with other runs. Grouped queries share keys and values; nothing is padded or masked but the diagonal.

#include "products.h"

#define QUERIES 32

typedef struct {
    int32_t first, count;
    // The prefix: `before` rows from `prefix` on, all visible.
    int32_t prefix, before;
} Run;

typedef struct {
    long runs, heads, shared, size;
    // Floats between two rows of queries, of keys and of values.
    long q_stride, k_stride, v_stride;
} Attention;

// Keys or values of one head over prefix and run, gathered for products: rows (padded, size), transposed (size, padded).
typedef struct {
    long length, padded;
    float *rows, *transposed;
} Gathered;

INLINE long round_up(long n) { return (n + LANES - 1) / LANES * LANES; }
INLINE long key_row(const Run *run, long j) { return j < run->before ? run->prefix + j : run->first + j - run->before; }

static void gather(Gathered *g, const float *x, long stride, const Run *run, long size, int rows, int transposed) {
    g->length = run->before + run->count;
    g->padded = round_up(g->length);
    for (long j = 0; j < g->padded; j++) {
        const float *from = j < g->length ? x + key_row(run, j) * stride : 0;
        if (rows)
            for (long d = 0; d < size; d++) g->rows[j * size + d] = from ? from[d] : 0.0f;
        if (transposed)
            for (long d = 0; d < size; d++) g->transposed[d * g->padded + j] = from ? from[d] : 0.0f;
    }
}

static long longest_run(const Run *runs, long count) {
    long longest = 0;
    for (long r = 0; r < count; r++) longest = larger_of(longest, runs[r].before + runs[r].count);
    return round_up(longest);
}

// Queries first..first+count-1 of a run, scaled: (count, size).
INLINE void scaled_queries(const float *q, long stride, long first, long count, long size, float scale, float *out) {
    for (long i = 0; i < count; i++)
        for (long d = 0; d < size; d++) out[i * size + d] = q[(first + i) * stride + d] * scale;
}

// exp(score - peak) of the first `seen` of `width` scores, 0 for the others; their sum.
INLINE float weigh(float *scores, long seen, long width, float peak) {
    v16 sum = {0};
    const i16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (long j = 0; j < width; j += LANES) {
        v16 value = j < seen ? exponential(load(scores + j) - peak) : (v16){0};
        if (j + LANES > seen) value = (v16)((i16)value & (lane + (int32_t)j < (int32_t)seen));
        store(scores + j, value);
        sum = sum + value;
    }
    return lane_sum(sum);
}

INLINE float highest(const float *scores, long seen) {
    v16 peak = splat(-INFINITY);
    long j = 0;
    for (; j + LANES <= seen; j += LANES) peak = larger(load(scores + j), peak);
    float top = lane_max(peak);
    for (; j < seen; j++) top = scores[j] > top ? scores[j] : top;
    return top;
}

// mixed (rows, heads * size), and per row and head the peak of its scores and the inverse sum of exp(score - peak).
void attention_forward(const Attention *shape, const Run *runs, const float *q, const float *k, const float *v, float *mixed,
                       float *statistics) {
    const Attention a = *shape;
    const long group = a.heads / a.shared, longest = longest_run(runs, a.runs);
    const float scale = 1.0f / sqrtf((float)a.size);
#pragma omp parallel
    {
        Gathered keys = {.transposed = floats(longest * a.size)}, values = {.rows = floats(longest * a.size)};
        float *queries = floats(QUERIES * a.size), *scores = floats(QUERIES * longest), *out = floats(QUERIES * a.size);
#pragma omp for schedule(dynamic)
        for (long item = 0; item < a.runs * a.shared; item++) {
            const Run *run = runs + item / a.shared;
            const long head = item % a.shared;
            gather(&keys, k + head * a.size, a.k_stride, run, a.size, 0, 1);
            gather(&values, v + head * a.size, a.v_stride, run, a.size, 1, 0);
            for (long h = head * group; h < (head + 1) * group; h++)
                for (long first = 0; first < run->count; first += QUERIES) {
                    const long count = smaller_of(QUERIES, run->count - first);
                    const long width = round_up(run->before + first + count);
                    scaled_queries(q + h * a.size, a.q_stride, run->first + first, count, a.size, scale, queries);
                    float_product(queries, a.size, 1, keys.transposed, keys.padded, count, width, a.size, scores, width, 0);
                    for (long i = 0; i < count; i++) {
                        const long seen = run->before + first + i + 1, row = run->first + first + i;
                        const float peak = highest(scores + i * width, seen);
                        statistics[(row * a.heads + h) * 2] = peak;
                        statistics[(row * a.heads + h) * 2 + 1] = 1.0f / weigh(scores + i * width, seen, width, peak);
                    }
                    float_product(scores, width, 1, values.rows, a.size, count, a.size, width, out, a.size, 0);
                    for (long i = 0; i < count; i++) {
                        const long row = run->first + first + i;
                        const float inverse = statistics[(row * a.heads + h) * 2 + 1];
                        float *place = mixed + (row * a.heads + h) * a.size;
                        for (long d = 0; d < a.size; d++) place[d] = out[i * a.size + d] * inverse;
                    }
                }
        }
        free(keys.transposed), free(values.rows), free(queries), free(scores), free(out);
    }
}

typedef struct {
    float *queries, *scores, *gradients, *out, *dkeys, *dvalues;
} Scratch;

// One head of queries of a run: dq, and its part of the gradients of the run's keys and values, (padded, size).
static void head_backward(const Attention *a, const Run *run, long h, const Gathered *keys, const Gathered *values, const float *q,
                          const float *mixed, const float *statistics, const float *dmixed, float *dq, Scratch s) {
    const float scale = 1.0f / sqrtf((float)a->size);
    for (long first = 0; first < run->count; first += QUERIES) {
        const long count = smaller_of(QUERIES, run->count - first), start = run->first + first;
        const long width = round_up(run->before + first + count), stride = a->heads * a->size;
        const float *given = dmixed + start * stride + h * a->size;
        scaled_queries(q + h * a->size, a->q_stride, start, count, a->size, scale, s.queries);
        float_product(s.queries, a->size, 1, keys->transposed, keys->padded, count, width, a->size, s.scores, width, 0);
        float_product(given, stride, 1, values->transposed, values->padded, count, width, a->size, s.gradients, width, 0);
        for (long i = 0; i < count; i++) {
            const float *statistic = statistics + ((start + i) * a->heads + h) * 2;
            weigh(s.scores + i * width, run->before + first + i + 1, width, statistic[0]);
            v16 sum = {0};
            for (long d = 0; d < a->size; d += LANES)
                sum = sum + load(given + i * stride + d) * load(mixed + (start + i) * stride + h * a->size + d);
            const float mean = lane_sum(sum);
            for (long j = i * width; j < (i + 1) * width; j += LANES) {
                const v16 weight = load(s.scores + j) * statistic[1];
                store(s.scores + j, weight);
                store(s.gradients + j, weight * (load(s.gradients + j) - mean));
            }
        }
        float_product(s.gradients, width, 1, keys->rows, a->size, count, a->size, width, s.out, a->size, 0);
        for (long i = 0; i < count; i++)
            for (long d = 0; d < a->size; d++) dq[(start + i) * a->q_stride + h * a->size + d] = s.out[i * a->size + d] * scale;
        float_product(s.gradients, 1, width, s.queries, a->size, width, a->size, count, s.dkeys, a->size, 1);
        for (long i = 0; i < count; i++) memcpy(s.out + i * a->size, given + i * stride, (size_t)a->size * 4);
        float_product(s.scores, 1, width, s.out, a->size, width, a->size, count, s.dvalues, a->size, 1);
    }
}

// dq, dk and dv have the strides of q, k and v, and dk and dv begin as zeros. Heads of keys are divided among the threads, so that
// the parts of a shared prefix are added in the order of the runs.
void attention_backward(const Attention *shape, const Run *runs, const float *q, const float *k, const float *v, const float *mixed,
                        const float *statistics, const float *dmixed, float *dq, float *dk, float *dv) {
    const Attention a = *shape;
    const long group = a.heads / a.shared, longest = longest_run(runs, a.runs);
#pragma omp parallel for schedule(dynamic)
    for (long head = 0; head < a.shared; head++) {
        Gathered keys = {.rows = floats(longest * a.size), .transposed = floats(longest * a.size)};
        Gathered values = {.transposed = floats(longest * a.size)};
        Scratch s = {floats(QUERIES * a.size), floats(QUERIES * longest), floats(QUERIES * longest), floats(QUERIES * a.size),
                     floats(longest * a.size), floats(longest * a.size)};
        for (long r = 0; r < a.runs; r++) {
            const Run *run = runs + r;
            gather(&keys, k + head * a.size, a.k_stride, run, a.size, 1, 1);
            gather(&values, v + head * a.size, a.v_stride, run, a.size, 0, 1);
            memset(s.dkeys, 0, (size_t)(keys.padded * a.size) * 4);
            memset(s.dvalues, 0, (size_t)(keys.padded * a.size) * 4);
            for (long h = head * group; h < (head + 1) * group; h++)
                head_backward(&a, run, h, &keys, &values, q, mixed, statistics, dmixed, dq, s);
            for (long j = 0; j < keys.length; j++)
                for (long d = 0; d < a.size; d++) {
                    dk[key_row(run, j) * a.k_stride + head * a.size + d] += s.dkeys[j * a.size + d];
                    dv[key_row(run, j) * a.v_stride + head * a.size + d] += s.dvalues[j * a.size + d];
                }
        }
        free(keys.rows), free(keys.transposed), free(values.transposed);
        free(s.queries), free(s.scores), free(s.gradients), free(s.out), free(s.dkeys), free(s.dvalues);
    }
}

// -- one new token of each sample --------------------------------------------------------------------------------------

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
                scaled_queries(given + s * stride + head * group * a.size, a.size, 0, group, a.size, scale,
                               queries + s * group * a.size);
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
