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
