// Causal attention over runs of rows: each run is a sequence, or the part of one that follows a prefix that lies elsewhere and may
// be shared with other runs. Grouped queries share keys and values; nothing is padded or masked but the diagonal. The forward pass is
// float32, as that of one new token is (decode.c), so that sampling and training give the same probabilities; products of the
// backward pass take operands of 11 to 13 bits.

#include "attention.h"
#include "pairs.h"
#include "products.h"

// Queries at a time; also the summands of a part of the gradients of keys and values.
#define QUERIES 32
// Queries at a time in the forward pass: a tile of `float_product`.
#define FEW 6
// Rows of gradients whose memory is asked for before they are read.
#define AHEAD 8

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

// Keys or values of one head over prefix and run as right operands, padded with zeros: `transposed` (size / 2, ld), summed over
// dimensions; `interleaved` (padded / 2, size), summed over rows. What was made of a prefix stays for the next run after it.
typedef struct {
    long length, padded, ld, head;
    int32_t prefix, before;
    float *scale, *interleaved_scale;
    int32_t *rows, *transposed, *interleaved;
} Operand;

static Operand operand_of(long longest, long size) {
    const long ld = longest + LANES, area = ld * size * 2;
    return (Operand){.ld = ld,
                     .head = -1,
                     .scale = floats(ld),
                     .interleaved_scale = floats(ld),
                     .rows = aligned(area),
                     .transposed = aligned(area),
                     .interleaved = aligned(area)};
}

static void free_operand(Operand o) {
    free(o.scale), free(o.interleaved_scale), free(o.rows), free(o.transposed), free(o.interleaved);
}

// Rows from `done` on, a multiple of 16 within the prefix.
static void gather(Operand *o, const float *x, long stride, const Run *run, long size, float top, float *scale, long done) {
    const long half = size / 2;
    pair_rows(x + (run->prefix + done) * stride, run->before - done, size, stride, top, o->rows + done * half, scale + done);
    pair_rows(x + run->first * stride, run->count, size, stride, top, o->rows + run->before * half, scale + run->before);
    memset(o->rows + o->length * half, 0, (size_t)((o->padded - o->length) * half * 4));
    for (long j = o->length; j < o->padded; j++) scale[j] = 0.0f;
}

// Head `head` of x for a run: transposed and, where `both`, interleaved.
static void take(Operand *o, const float *x, long stride, const Run *run, long size, long head, int both) {
    const int known = o->head == head && o->prefix == run->prefix && o->before == run->before;
    const long done = known ? run->before / LANES * LANES : 0, half = size / 2;
    o->head = head, o->prefix = run->prefix, o->before = run->before;
    o->length = run->before + run->count, o->padded = round_up(o->length);
    x += head * size;
    if (both) {
        gather(o, x, stride, run, size, PAIR_TOP, o->interleaved_scale, done);
        pairs_interleaved(o->rows + done * half, o->padded - done, size, o->interleaved + done * half);
    }
    gather(o, x, stride, run, size, pair_top(size), o->scale, done);
    pairs_transposed(o->rows + done * half, o->padded - done, size, o->transposed + done, o->ld);
}

static long longest_run(const Run *runs, long count) {
    long longest = 0;
    for (long r = 0; r < count; r++) longest = larger_of(longest, runs[r].before + runs[r].count);
    return round_up(longest);
}

// What a thread needs for QUERIES rows of one head in the backward pass.
typedef struct {
    Operand keys, values;
    float *ones, *queries, *weights, *gradients, *out, *dkeys, *dvalues, *scale, *columns;
    int32_t *pairs;
} Scratch;

static Scratch scratch_of(long longest, long size) {
    const long widest = larger_of(longest, size), block = QUERIES * longest;
    Scratch s = {operand_of(longest, size), operand_of(longest, size), floats(size), floats(QUERIES * size), floats(block),
                 floats(block), floats(QUERIES * size), floats(longest * size), floats(longest * size), floats(QUERIES),
                 floats(widest + size), aligned((QUERIES + 2) * (widest + size) * 2)};
    for (long d = 0; d < size; d++) s.ones[d] = 1.0f;
    return s;
}

static void free_scratch(Scratch s) {
    free_operand(s.keys), free_operand(s.values), free(s.ones), free(s.queries), free(s.weights), free(s.gradients), free(s.out);
    free(s.dkeys), free(s.dvalues), free(s.scale), free(s.columns), free(s.pairs);
}

// out (rows, padded) = rows of x (rows, size), with `ld` floats between them, times the first `width` rows of `o`.
INLINE void multiply(const float *x, long ld, const Operand *o, long rows, long size, long width, Scratch *s, float *out) {
    pair_rows(x, rows, size, ld, pair_top(size), s->pairs, s->scale);
    pair_product((PairLeft){s->pairs, s->scale, size / 2, 1}, (PairRight){o->transposed, o->scale, o->ld}, rows, size / 2, width,
                 out, width, 0);
}

// out (rows, size) = x (rows, width) times the first `width` rows of `o`, whose scales go into x first.
INLINE void mix(float *x, const Operand *o, long rows, long width, long size, Scratch *s, float *out) {
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < width; j += PART)
            store(x + i * width + j, load(x + i * width + j) * load(o->interleaved_scale + j));
    pair_rows(x, rows, width, width, PAIR_TOP, s->pairs, s->scale);
    pair_product((PairLeft){s->pairs, s->scale, width / 2, 1}, (PairRight){o->interleaved, s->ones, size}, rows, width / 2, size, out,
                 size, 0);
}

// out (width, size) += x^T y, of x (rows, width) and y (rows, size), with `ld` floats between its rows.
INLINE void add_transposed(const float *x, const float *y, long ld, long rows, long width, long size, Scratch *s, float *out) {
    const long pairs = (rows + 1) / 2;
    int32_t *right = s->pairs + pairs * width;
    pair_columns(x, rows, width, width, PAIR_TOP, s->pairs, s->columns);
    pair_columns(y, rows, size, ld, PAIR_TOP, right, s->columns + width);
    pair_product((PairLeft){s->pairs, s->columns, 1, width}, (PairRight){right, s->columns + width, size}, width, pairs, size, out,
                 size, 1);
}

// Queries first..first+count-1 of a run, scaled: (count, size).
INLINE void scaled_queries(const float *q, long stride, long count, long size, float *out) {
    const float scale = 1.0f / sqrtf((float)size);
    for (long i = 0; i < count; i++)
        for (long d = 0; d < size; d += PART) store(out + i * size + d, load(q + i * stride + d) * scale);
}

// Keys of one head over prefix and run: (size, width), zero beyond their number. width: a multiple of 16.
static void transposed_keys(const float *k, long stride, const Run *run, long size, long width, float *out) {
    float some[LANES * LANES];
    const long length = run->before + run->count;
    for (long j = 0; j < width; j += LANES) {
        const int separate = j + LANES > length || (j < run->before && j + LANES > run->before);
        for (long d = 0; d < size; d += LANES) {
            const float *from = k + key_row(run, j) * stride + d;
            if (separate)
                for (long i = 0; i < LANES; i++) {
                    if (j + i < length) memcpy(some + i * LANES, k + key_row(run, j + i) * stride + d, LANES * 4);
                    else memset(some + i * LANES, 0, LANES * 4);
                }
            transpose16((const int32_t *)(separate ? some : from), separate ? LANES : stride, (int32_t *)(out + d * width + j), width);
        }
    }
}

// out (count, size) = weights (count, width) of the first before + own rows of prefix and run, times their values.
INLINE void mix_values(const float *weights, long width, const float *v, long stride, const Run *run, long count, long own,
                       long size, float *out) {
    if (run->before) float_product(weights, width, 1, v + run->prefix * stride, stride, count, size, run->before, out, size, 0);
    float_product(weights + run->before, width, 1, v + run->first * stride, stride, count, size, own, out, size, run->before > 0);
}

// How many items, heads of runs, a thread takes at once: whole runs where there are many, whose rows lie in its cache.
INLINE long chunk_of(const Attention *a, long runs) { return runs > 8 ? a->shared : 1; }

// mixed (rows, heads * size), and per row and head the peak of its scores. Few queries at a time, so that little beyond the last key
// that they see is computed.
void attention_forward(const Attention *shape, const Run *runs, const float *q, const float *k, const float *v, float *mixed,
                       float *peaks) {
    const Attention a = *shape;
    const long group = a.heads / a.shared, longest = longest_run(runs, a.runs), stride = a.heads * a.size;
#pragma omp parallel
    {
        float *keys = floats(longest * a.size), *queries = floats(FEW * a.size), *weights = floats(FEW * longest);
        float *out = floats(FEW * a.size), inverse[FEW];
#pragma omp for schedule(dynamic, chunk_of(&a, a.runs))
        for (long item = 0; item < a.runs * a.shared; item++) {
            const Run *run = runs + item / a.shared;
            const long head = item % a.shared, padded = round_up(run->before + run->count);
            ask_for(q + run->first * a.q_stride + head * group * a.size, run->count, group * a.size, a.q_stride);
            ask_for(v + run->first * a.v_stride + head * a.size, run->count, a.size, a.v_stride);
            transposed_keys(k + head * a.size, a.k_stride, run, a.size, padded, keys);
            for (long h = head * group; h < (head + 1) * group; h++)
                for (long first = 0; first < run->count; first += FEW) {
                    const long count = smaller_of(FEW, run->count - first), start = run->first + first;
                    const long width = round_up(run->before + first + count);
                    scaled_queries(q + start * a.q_stride + h * a.size, a.q_stride, count, a.size, queries);
                    float_product(queries, a.size, 1, keys, padded, count, width, a.size, weights, width, 0);
                    for (long i = 0; i < count; i++) {
                        const long seen = run->before + first + i + 1;
                        const float peak = peaks[(start + i) * a.heads + h] = highest(weights + i * width, seen);
                        inverse[i] = 1.0f / weigh(weights + i * width, seen, width, peak);
                    }
                    mix_values(weights, width, v + head * a.size, a.v_stride, run, count, first + count, a.size, out);
                    for (long i = 0; i < count; i++) {
                        float *place = mixed + (start + i) * stride + h * a.size;
                        for (long d = 0; d < a.size; d += PART) store(place + d, load(out + i * a.size + d) * inverse[i]);
                    }
                }
        }
        free(keys), free(queries), free(weights), free(out);
    }
}

// One head of queries of a run: dq, and its part of the gradients of the run's keys and values, (padded, size).
static void head_backward(const Attention *a, const Run *run, long h, const float *q, const float *peaks, const float *dmixed,
                          float *dq, Scratch *s) {
    const float scale = 1.0f / sqrtf((float)a->size);
    const long stride = a->heads * a->size;
    for (long first = 0; first < run->count; first += QUERIES) {
        const long count = smaller_of(QUERIES, run->count - first), start = run->first + first;
        const long width = round_up(run->before + first + count);
        const float *given = dmixed + start * stride + h * a->size;
        scaled_queries(q + start * a->q_stride + h * a->size, a->q_stride, count, a->size, s->queries);
        multiply(s->queries, a->size, &s->keys, count, a->size, width, s, s->weights);
        multiply(given, stride, &s->values, count, a->size, width, s, s->gradients);
        for (long i = 0; i < count; i++) {
            // Normalised again, since the sum of the gradients of scores is 0 only with the weights that are used here.
            float *weights = s->weights + i * width, *gradients = s->gradients + i * width;
            const float inverse = 1.0f / weigh(weights, run->before + first + i + 1, width, peaks[(start + i) * a->heads + h]);
            Lanes sum = {0};
            for (long j = 0; j < width; j += LANES)
                for (int p = 0; p < PARTS; p++) {
                    const long at = j + p * PART;
                    const vec weight = load(weights + at) * inverse;
                    store(weights + at, weight);
                    sum.part[p] = fma_of(weight, load(gradients + at), sum.part[p]);
                }
            const float mean = lane_sum(sum);
            for (long j = 0; j < width; j += PART) store(gradients + j, load(weights + j) * (load(gradients + j) - mean));
        }
        add_transposed(s->weights, given, stride, count, width, a->size, s, s->dvalues);
        add_transposed(s->gradients, s->queries, a->size, count, width, a->size, s, s->dkeys);
        mix(s->gradients, &s->keys, count, width, a->size, s, s->out);
        for (long i = 0; i < count; i++)
            for (long d = 0; d < a->size; d += PART)
                store(dq + (start + i) * a->q_stride + h * a->size + d, load(s->out + i * a->size + d) * scale);
    }
}

// One head of keys of a run.
static void run_backward(const Attention *a, const Run *run, long head, const float *q, const float *k, const float *v,
                         const float *peaks, const float *dmixed, float *dq, float *dk, float *dv, int add, Scratch *s) {
    const long group = a->heads / a->shared, place = head * a->size;
    take(&s->keys, k, a->k_stride, run, a->size, head, 1);
    take(&s->values, v, a->v_stride, run, a->size, head, 0);
    memset(s->dkeys, 0, (size_t)(s->keys.padded * a->size) * 4);
    memset(s->dvalues, 0, (size_t)(s->keys.padded * a->size) * 4);
    ask_for(q + run->first * a->q_stride + place * group, run->count, group * a->size, a->q_stride);
    ask_for(dmixed + run->first * a->heads * a->size + place * group, run->count, group * a->size, a->heads * a->size);
    for (long h = head * group; h < (head + 1) * group; h++) head_backward(a, run, h, q, peaks, dmixed, dq, s);
    for (long j = 0; j < s->keys.length; j++) {
        const long next = key_row(run, smaller_of(j + AHEAD, s->keys.length - 1));
        ask_for(dk + next * a->k_stride + place, 1, a->size, 0), ask_for(dv + next * a->v_stride + place, 1, a->size, 0);
        for (long d = 0; d < a->size; d += PART) {
            float *key = dk + key_row(run, j) * a->k_stride + place + d, *value = dv + key_row(run, j) * a->v_stride + place + d;
            vec dkey = load(s->dkeys + j * a->size + d), dvalue = load(s->dvalues + j * a->size + d);
            if (add) dkey = load(key) + dkey, dvalue = load(value) + dvalue;
            store(key, dkey), store(value, dvalue);
        }
    }
}

// The gradients of keys and values of all runs to 0.
static void clear(const Attention *a, const Run *runs, float *dk, float *dv) {
    const size_t size = (size_t)(a->shared * a->size) * 4;
    for (long r = 0; r < a->runs; r++)
        for (long row = runs[r].first; row < runs[r].first + runs[r].count; row++)
            memset(dk + row * a->k_stride, 0, size), memset(dv + row * a->v_stride, 0, size);
}

// dq, dk and dv have the strides of q, k and v. Where a run has a prefix, which others may share,
// heads alone are divided among the threads, so that the parts of the prefix are added in the order of the runs.
void attention_backward(const Attention *shape, const Run *runs, const float *q, const float *k, const float *v, const float *peaks,
                        const float *dmixed, float *dq, float *dk, float *dv) {
    const Attention a = *shape;
    const long longest = longest_run(runs, a.runs);
    long together = 1;
    int prefixes = 0;
    for (long r = 0; r < a.runs; r++)
        if (runs[r].before) together = a.runs, prefixes = 1;
    if (prefixes) clear(&a, runs, dk, dv);
#pragma omp parallel
    {
        Scratch s = scratch_of(longest, a.size);
#pragma omp for schedule(dynamic, chunk_of(&a, a.runs / together))
        for (long item = 0; item < a.runs / together * a.shared; item++)
            for (long r = item / a.shared * together; r < (item / a.shared + 1) * together; r++)
                run_backward(&a, runs + r, item % a.shared, q, k, v, peaks, dmixed, dq, dk, dv, prefixes, &s);
        free_scratch(s);
    }
}
