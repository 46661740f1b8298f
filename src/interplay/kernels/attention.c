// Causal attention over runs of rows: each run is a sequence, or the part of one that follows a prefix that lies elsewhere and may
// be shared with other runs. Grouped queries share keys and values; nothing is padded or masked but the diagonal. Products take
// operands of 11 bits, whose scale is that of a row of queries, keys, values or weights, so that no row depends on later ones.

#include "attention.h"
#include "pairs.h"

// Queries at a time; also the summands of a part of the gradients of keys and values.
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

INLINE long key_row(const Run *run, long j) { return j < run->before ? run->prefix + j : run->first + j - run->before; }

// Keys or values of one head over prefix and run as right operands, padded with zeros: `transposed` (size / 2, padded), summed over
// dimensions; `interleaved` (padded / 2, size), summed over rows.
typedef struct {
    long length, padded;
    float *scale;
    int32_t *rows, *transposed, *interleaved;
} Operand;

static Operand operand_of(long longest, long size) {
    const long area = longest * size * 2;
    return (Operand){.scale = floats(longest), .rows = aligned(area), .transposed = aligned(area), .interleaved = aligned(area)};
}

static void free_operand(Operand o) { free(o.scale), free(o.rows), free(o.transposed), free(o.interleaved); }

static void gather(Operand *o, const float *x, long stride, const Run *run, long size) {
    o->length = run->before + run->count;
    o->padded = round_up(o->length);
    pair_rows(x + run->prefix * stride, run->before, size, stride, o->rows, o->scale);
    pair_rows(x + run->first * stride, run->count, size, stride, o->rows + run->before * size / 2, o->scale + run->before);
    memset(o->rows + o->length * size / 2, 0, (size_t)((o->padded - o->length) * size * 2));
    for (long j = o->length; j < o->padded; j++) o->scale[j] = 0.0f;
}

INLINE PairRight by_dimension(const Operand *o) { return (PairRight){o->transposed, o->scale, o->padded}; }

static long longest_run(const Run *runs, long count) {
    long longest = 0;
    for (long r = 0; r < count; r++) longest = larger_of(longest, runs[r].before + runs[r].count);
    return round_up(longest);
}

// What a thread needs for QUERIES rows of one head.
typedef struct {
    Operand keys, values;
    float *ones, *queries, *weights, *gradients, *out, *dkeys, *dvalues, *scale, *columns;
    int32_t *pairs;
} Scratch;

static Scratch scratch_of(long longest, long size, int backward) {
    const long widest = larger_of(longest, size), area = backward ? longest * size : 0;
    Scratch s = {operand_of(longest, size), operand_of(longest, size), floats(size), floats(QUERIES * size),
                 floats(QUERIES * longest), backward ? floats(QUERIES * longest) : 0, floats(QUERIES * size),
                 floats(area), floats(area), floats(QUERIES), floats(widest + size), aligned((QUERIES + 2) * (widest + size) * 2)};
    for (long d = 0; d < size; d++) s.ones[d] = 1.0f;
    return s;
}

static void free_scratch(Scratch s) {
    free_operand(s.keys), free_operand(s.values), free(s.ones), free(s.queries), free(s.weights), free(s.gradients), free(s.out);
    free(s.dkeys), free(s.dvalues), free(s.scale), free(s.columns), free(s.pairs);
}

// out (rows, columns of `right`) = rows of x (rows, summed), with `ld` floats between them, times `right`.
INLINE void multiply(const float *x, long ld, PairRight right, long rows, long summed, long columns, Scratch *s, float *out) {
    pair_rows(x, rows, summed, ld, s->pairs, s->scale);
    pair_product((PairLeft){s->pairs, s->scale, summed / 2, 1}, right, rows, summed / 2, columns, out, columns, 0);
}

// The same where `right` is summed over keys or values: their scales, one for each column of x (rows, width), go into x first.
INLINE void multiply_rows(float *x, const Operand *right, long rows, long width, long size, Scratch *s, float *out) {
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < width; j += LANES) store(x + i * width + j, load(x + i * width + j) * load(right->scale + j));
    multiply(x, width, (PairRight){right->interleaved, s->ones, size}, rows, width, size, s, out);
}

// out (width, size) += x^T y, of x (rows, width) and y (rows, size), with `ld` floats between its rows.
INLINE void add_transposed(const float *x, const float *y, long ld, long rows, long width, long size, Scratch *s, float *out) {
    const long pairs = (rows + 1) / 2;
    int32_t *right = s->pairs + pairs * width;
    pair_columns(x, rows, width, width, s->pairs, s->columns);
    pair_columns(y, rows, size, ld, right, s->columns + width);
    pair_product((PairLeft){s->pairs, s->columns, 1, width}, (PairRight){right, s->columns + width, size}, width, pairs, size, out,
                 size, 1);
}

// Queries first..first+count-1 of a run, scaled: (count, size).
INLINE void scaled_queries(const float *q, long stride, long count, long size, float *out) {
    const float scale = 1.0f / sqrtf((float)size);
    for (long i = 0; i < count; i++)
        for (long d = 0; d < size; d += LANES) store(out + i * size + d, load(q + i * stride + d) * scale);
}

// mixed (rows, heads * size), and per row and head the peak of its scores and the inverse sum of exp(score - peak).
void attention_forward(const Attention *shape, const Run *runs, const float *q, const float *k, const float *v, float *mixed,
                       float *statistics) {
    const Attention a = *shape;
    const long group = a.heads / a.shared, longest = longest_run(runs, a.runs), stride = a.heads * a.size;
#pragma omp parallel
    {
        Scratch s = scratch_of(longest, a.size, 0);
#pragma omp for schedule(dynamic)
        for (long item = 0; item < a.runs * a.shared; item++) {
            const Run *run = runs + item / a.shared;
            const long head = item % a.shared;
            gather(&s.keys, k + head * a.size, a.k_stride, run, a.size);
            pairs_transposed(s.keys.rows, s.keys.padded, a.size, s.keys.transposed);
            gather(&s.values, v + head * a.size, a.v_stride, run, a.size);
            pairs_interleaved(s.values.rows, s.values.padded, a.size, s.values.interleaved);
            for (long h = head * group; h < (head + 1) * group; h++)
                for (long first = 0; first < run->count; first += QUERIES) {
                    const long count = smaller_of(QUERIES, run->count - first), start = run->first + first;
                    const long width = round_up(run->before + first + count);
                    scaled_queries(q + start * a.q_stride + h * a.size, a.q_stride, count, a.size, s.queries);
                    multiply(s.queries, a.size, by_dimension(&s.keys), count, a.size, width, &s, s.weights);
                    for (long i = 0; i < count; i++) {
                        const long seen = run->before + first + i + 1;
                        float *statistic = statistics + ((start + i) * a.heads + h) * 2;
                        statistic[0] = highest(s.weights + i * width, seen);
                        statistic[1] = 1.0f / weigh(s.weights + i * width, seen, width, statistic[0]);
                    }
                    multiply_rows(s.weights, &s.values, count, width, a.size, &s, s.out);
                    for (long i = 0; i < count; i++) {
                        const float inverse = statistics[((start + i) * a.heads + h) * 2 + 1];
                        float *place = mixed + (start + i) * stride + h * a.size;
                        for (long d = 0; d < a.size; d += LANES) store(place + d, load(s.out + i * a.size + d) * inverse);
                    }
                }
        }
        free_scratch(s);
    }
}

// One head of queries of a run: dq, and its part of the gradients of the run's keys and values, (padded, size).
static void head_backward(const Attention *a, const Run *run, long h, const float *q, const float *mixed, const float *statistics,
                          const float *dmixed, float *dq, Scratch *s) {
    const float scale = 1.0f / sqrtf((float)a->size);
    const long stride = a->heads * a->size;
    for (long first = 0; first < run->count; first += QUERIES) {
        const long count = smaller_of(QUERIES, run->count - first), start = run->first + first;
        const long width = round_up(run->before + first + count);
        const float *given = dmixed + start * stride + h * a->size;
        scaled_queries(q + start * a->q_stride + h * a->size, a->q_stride, count, a->size, s->queries);
        multiply(s->queries, a->size, by_dimension(&s->keys), count, a->size, width, s, s->weights);
        multiply(given, stride, by_dimension(&s->values), count, a->size, width, s, s->gradients);
        for (long i = 0; i < count; i++) {
            const float *statistic = statistics + ((start + i) * a->heads + h) * 2;
            weigh(s->weights + i * width, run->before + first + i + 1, width, statistic[0]);
            v16 sum = {0};
            for (long d = 0; d < a->size; d += LANES)
                sum = sum + load(given + i * stride + d) * load(mixed + (start + i) * stride + h * a->size + d);
            const float mean = lane_sum(sum), inverse = statistic[1];
            for (long j = i * width; j < (i + 1) * width; j += LANES) {
                const v16 weight = load(s->weights + j) * inverse;
                store(s->weights + j, weight);
                store(s->gradients + j, weight * (load(s->gradients + j) - mean));
            }
        }
        add_transposed(s->weights, given, stride, count, width, a->size, s, s->dvalues);
        add_transposed(s->gradients, s->queries, a->size, count, width, a->size, s, s->dkeys);
        multiply_rows(s->gradients, &s->keys, count, width, a->size, s, s->out);
        for (long i = 0; i < count; i++)
            for (long d = 0; d < a->size; d += LANES)
                store(dq + (start + i) * a->q_stride + h * a->size + d, load(s->out + i * a->size + d) * scale);
    }
}

// One head of keys of a run.
static void run_backward(const Attention *a, const Run *run, long head, const float *q, const float *k, const float *v,
                         const float *mixed, const float *statistics, const float *dmixed, float *dq, float *dk, float *dv,
                         Scratch *s) {
    const long group = a->heads / a->shared, place = head * a->size;
    gather(&s->keys, k + place, a->k_stride, run, a->size);
    pairs_transposed(s->keys.rows, s->keys.padded, a->size, s->keys.transposed);
    pairs_interleaved(s->keys.rows, s->keys.padded, a->size, s->keys.interleaved);
    gather(&s->values, v + place, a->v_stride, run, a->size);
    pairs_transposed(s->values.rows, s->values.padded, a->size, s->values.transposed);
    memset(s->dkeys, 0, (size_t)(s->keys.padded * a->size) * 4);
    memset(s->dvalues, 0, (size_t)(s->keys.padded * a->size) * 4);
    for (long h = head * group; h < (head + 1) * group; h++) head_backward(a, run, h, q, mixed, statistics, dmixed, dq, s);
    for (long j = 0; j < s->keys.length; j++)
        for (long d = 0; d < a->size; d += LANES) {
            float *key = dk + key_row(run, j) * a->k_stride + place + d, *value = dv + key_row(run, j) * a->v_stride + place + d;
            store(key, load(key) + load(s->dkeys + j * a->size + d));
            store(value, load(value) + load(s->dvalues + j * a->size + d));
        }
}

// dq, dk and dv have the strides of q, k and v, and dk and dv begin as zeros. Where a run has a prefix, which others may share,
// heads alone are divided among the threads, so that the parts of the prefix are added in the order of the runs.
void attention_backward(const Attention *shape, const Run *runs, const float *q, const float *k, const float *v, const float *mixed,
                        const float *statistics, const float *dmixed, float *dq, float *dk, float *dv) {
    const Attention a = *shape;
    const long longest = longest_run(runs, a.runs);
    long together = 1;
    for (long r = 0; r < a.runs; r++)
        if (runs[r].before) together = a.runs;
#pragma omp parallel
    {
        Scratch s = scratch_of(longest, a.size, 1);
#pragma omp for schedule(dynamic)
        for (long item = 0; item < a.runs / together * a.shared; item++)
            for (long r = item / a.shared * together; r < (item / a.shared + 1) * together; r++)
                run_backward(&a, runs + r, item % a.shared, q, k, v, mixed, statistics, dmixed, dq, dk, dv, &s);
        free_scratch(s);
    }
}
