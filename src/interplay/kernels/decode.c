// Completions of prompts, from the first token to the last: a block of slots takes one sample after the other through all layers,
// and a slot whose sample ends takes the next one. A token depends on its own prompt, tokens and noise alone, so that neither
// the number of slots nor of threads changes a byte. Keys and values of few slots stay in the cache of the processor.
//
// Attention has the operations of `attention_forward` in their order: a prompt's keys up to the last multiple of 16 lie once for
// all of its samples, and what is left of them begins each sample's own.

#include "attention.h"
#include "layer.h"
#include "pairs.h"

#define PANEL (4 * LANES)
#define SHARING 8

typedef struct {
    const float *attention_norm;
    const uint8_t *qkv;
    const float *bias, *qk_norm;
    const uint8_t *out;
    const float *mlp_norm;
    const uint8_t *gate_up, *down;
    // Of each prompt, as `keep_prompts` leaves them.
    const int32_t *prompt_keys, *prompt_values;
    const float *key_scale, *value_scale;
} DecodeLayer;

typedef struct {
    long layers, width, hidden, heads, shared, size, vocab;
    // Padded length of prompts, a multiple of 16; most new tokens of a sample; samples; room for own keys, a multiple of 16.
    long prompt, length, samples, capacity;
    // Slots of a block; the token that ends a sample, or -1.
    long slots, eos, top_k;
    float eps, temperature, top_p;
    const DecodeLayer *layer;
    // embedding (vocab, width); head as `head_product` wants it; cosines and sines (positions, size); logits (prompts, vocab
    // padded) of first tokens.
    const float *embedding, *norm, *head, *cos, *sin, *first;
    // Tokens of each prompt; prompt of each sample; noise (samples, length).
    const int64_t *lengths, *prompts;
    const double *noise;
    // Of each slot and layer: pairs of keys (capacity / 16, shared, size / 2, 16), then of values (capacity / 2, shared, size); a
    // scale of each (capacity / 16, shared, 16), which begin as zeros.
    int32_t *own;
    float *own_scale;
    int64_t *tokens;
    float *logprobs;
    // State: sample of each slot (-1: free) and how many tokens it has; the next sample that waits.
    int64_t *sample, *steps, *waiting;
} Completions;

// -- head and draw -----------------------------------------------------------------------------------------------------

// logits (rows, columns) of x (rows, width). head: panels of 64 columns, the last one of what is left, (width, 64) each.
void head_product(const float *x, const float *head, long rows, long width, long columns, float *logits) {
#pragma omp parallel for schedule(static)
    for (long n = 0; n < columns; n += PANEL) {
        const long count = smaller_of(PANEL, columns - n);
        float *out = floats(rows * count);
        float_product(x, width, 1, head + n * width, count, rows, count, width, out, count, 0);
        for (long m = 0; m < rows; m++) memcpy(logits + m * columns + n, out + m * count, (size_t)count * 4);
        free(out);
    }
}

// The natural logarithm of a normal positive number, by the series of the inverse hyperbolic tangent: within 1e-13.
INLINE double natural_log(double x) {
    union {
        double value;
        uint64_t bits;
    } part = {x};
    long exponent = (long)(part.bits >> 52) - 1023;
    part.bits = (part.bits & 0xfffffffffffffull) | 1023ull << 52;
    if (part.value > 1.4142135623730951) part.value *= 0.5, exponent++;
    const double s = (part.value - 1.0) / (part.value + 1.0), square = s * s;
    double sum = 0.0;
    for (int k = 19; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
    return 2.0 * s * sum + (double)exponent * 0.6931471805599453;
}

// The token whose interval of the cumulative distribution holds noise in (0, 1): the first whose sum exceeds it. Sums of 16 are of
// float32, sums of those of float64. `weights` are exp(z - peak), zeros at the end.
INLINE long drawn(const float *weights, long count, double total, double noise) {
    const double target = noise * total;
    double sum = 0.0;
    long block = 0, last = 0;
    for (; block + LANES < count; block += LANES) {
        const double next = sum + lane_sum(load(weights + block));
        if (next > target) break;
        sum = next;
    }
    for (long i = block; i < smaller_of(block + LANES, count); i++) {
        if (weights[i] > 0.0f) last = i;
        sum += weights[i];
        if (sum > target) return i;
    }
    return last;
}

// Over the weights of at least `least`: their number, or their sum.
INLINE double total_of(const float *weights, long padded, float least, int number) {
    double total = 0.0;
    for (long n = 0; n < padded; n += LANES) {
        const v16 w = load(weights + n);
        total += lane_sum((v16)((i16)(number ? splat(1.0f) : w) & (w >= least)));
    }
    return total;
}

// The largest weight whose equals and betters reach `wanted` in number or in sum. Positive floats are ordered as their bits are.
static float threshold(const float *weights, long padded, double wanted, int number) {
    union {
        uint32_t bits;
        float value;
    } low = {1}, high = {0x7f800000}, middle;
    while (high.bits - low.bits > 1) {
        middle.bits = low.bits + (high.bits - low.bits) / 2;
        if (total_of(weights, padded, middle.value, number) >= wanted) low = middle;
        else high = middle;
    }
    return low.value;
}

// Zeros for what top-k leaves out (all equals of the last one stay) and, of the rest, for what top-p does: it keeps the fewest of
// the likeliest that reach its share, the first of equals first.
static void restrict_to(float *weights, long padded, long top_k, float top_p) {
    if (top_k > 0) {
        const float least = threshold(weights, padded, (double)top_k, 1);
        for (long n = 0; n < padded; n++) weights[n] = weights[n] >= least ? weights[n] : 0.0f;
    }
    if (top_p >= 1.0f) return;
    const double wanted = (double)top_p * total_of(weights, padded, 0.0f, 0);
    const float least = threshold(weights, padded, wanted, 0);
    double sum = 0.0;
    for (long n = 0; n < padded; n++) sum += weights[n] > least ? weights[n] : 0.0f;
    for (long n = 0; n < padded; n++) {
        if (weights[n] > least) continue;
        if (weights[n] < least || sum >= wanted) weights[n] = 0.0f;
        sum += weights[n];
    }
}

// Draw the token at `step` of a sample from its logits, with scratch of their size; whether the sample ends with it.
static int draw(const Completions *c, const float *logits, long sample, long step, float *z) {
    const long padded = round_up(c->vocab), place = sample * c->length + step;
    const float temperature = c->temperature > 0.0f ? c->temperature : 1.0f;
    for (long n = 0; n < padded; n += LANES) store(z + n, load(logits + n) / temperature);
    const float peak = highest(z, c->vocab);
    long token = 0;
    while (z[token] < peak) token++;
    weigh(z, c->vocab, padded, peak);
    const double total = total_of(z, padded, 0.0f, 0);
    if (c->temperature > 0.0f) {
        const int restricted = (c->top_k > 0 && c->top_k < c->vocab) || c->top_p < 1.0f;
        if (restricted) restrict_to(z, padded, c->top_k, c->top_p);
        token = drawn(z, c->vocab, restricted ? total_of(z, padded, 0.0f, 0) : total, c->noise[place]);
    }
    c->tokens[place] = token;
    c->logprobs[place] = (float)((double)(logits[token] / temperature - peak) - natural_log(total));
    return token == c->eos || step + 1 == c->length;
}

// -- attention ---------------------------------------------------------------------------------------------------------

// Scores of `count` queries (size / 2) over 16 keys (size / 2, 16): `pitch` pairs separate two queries, `step` pairs and
// `scale_step` scales the keys that they see.
INLINE void own_scores(int count, const int32_t *queries, const float *by, long pitch, const int32_t *keys, long step,
                       const float *scale, long scale_step, long size, float *out, long ld) {
    i16 sums[4];
    for (int u = 0; u < count; u++) sums[u] = (i16){0};
    for (long d = 0; d < size / 2; d++)
        for (int u = 0; u < count; u++)
            sums[u] = pair_products(sums[u], queries[u * pitch + d], *(const i16 *)(keys + u * step + d * LANES));
    for (int u = 0; u < count; u++)
        store(out + u * ld, __builtin_convertvector(sums[u], v16) * (by[u * pitch * 2 / size] * load(scale + u * scale_step)));
}

// out (count, vectors * 16), `pitch` from one to the next, += weights (count, pairs), `ld` from one to the next, times values, of
// which `stride` separate two pairs of tokens and `step` those of two weights.
INLINE void value_sums(int count, int vectors, const int32_t *weights, long ld, const int32_t *values, long stride, long step,
                       long pairs, int32_t *out, long pitch) {
    i16 sums[4][4];
    for (int u = 0; u < count; u++)
        for (int v = 0; v < vectors; v++) sums[u][v] = *(const i16 *)(out + u * pitch + v * LANES);
    for (long t = 0; t < pairs; t++, values += stride)
        for (int u = 0; u < count; u++)
            for (int v = 0; v < vectors; v++)
                sums[u][v] = pair_products(sums[u][v], weights[u * ld + t], *(const i16 *)(values + u * step + v * LANES));
    for (int u = 0; u < count; u++)
        for (int v = 0; v < vectors; v++) *(i16 *)(out + u * pitch + v * LANES) = sums[u][v];
}

#define BY_COUNT(call)                                                                                                           \
    switch (count) {                                                                                                             \
        case 1: call(1); break;                                                                                                  \
        case 2: call(2); break;                                                                                                  \
        case 3: call(3); break;                                                                                                  \
        default: call(4);                                                                                                        \
    }

// The same over all own keys: `block` pairs and `scale_block` scales separate 16 from the next.
static void score(long count, const int32_t *queries, const float *by, long pitch, const int32_t *keys, long step, long block,
                  const float *scale, long scale_step, long scale_block, long size, long width, float *out, long ld) {
#define SCORES(N)                                                                                                                \
    own_scores(N, queries, by, pitch, keys + j / LANES * block, step, scale + j / LANES * scale_block, scale_step, size, out + j, ld)
    for (long j = 0; j < width; j += LANES) BY_COUNT(SCORES)
}

// The same over all dimensions of a head.
static void mix(long count, const int32_t *weights, long ld, const int32_t *values, long stride, long step, long size, long pairs,
                int32_t *out, long pitch) {
    for (long n = 0; n < size; n += PANEL) {
        const int32_t *given = values + n;
        int32_t *place = out + n;
#define VALUES(N)                                                                                                                \
    if (size - n >= PANEL) value_sums(N, 4, weights, ld, given, stride, step, pairs, place, pitch);                               \
    else if (size - n == 3 * LANES) value_sums(N, 3, weights, ld, given, stride, step, pairs, place, pitch);                      \
    else if (size - n == 2 * LANES) value_sums(N, 2, weights, ld, given, stride, step, pairs, place, pitch);                      \
    else value_sums(N, 1, weights, ld, given, stride, step, pairs, place, pitch)
        BY_COUNT(VALUES)
    }
}

// Keys and values of prompts as operands, from qk (prompts, length, rotated, size) and v (prompts, length, shared, size): keys
// (prompts, shared, size / 2, length), values (prompts, shared, length / 2, size), scales (prompts, shared, length). length: a
// multiple of 16.
void keep_prompts(long prompts, long length, long rotated, long shared, long size, const float *qk, const float *v, int32_t *keys,
                  float *key_scale, int32_t *values, float *value_scale) {
#pragma omp parallel
    {
        int32_t *rows = aligned(length * size * 2);
#pragma omp for schedule(static)
        for (long item = 0; item < prompts * shared; item++) {
            const long first = item / shared * length, h = item % shared, area = item * length * size / 2;
            pair_rows(qk + (first * rotated + rotated - shared + h) * size, length, size, rotated * size, rows,
                      key_scale + item * length);
            pairs_transposed(rows, length, size, keys + area);
            pair_rows(v + (first * shared + h) * size, length, size, shared * size, rows, value_scale + item * length);
            pairs_interleaved(rows, length, size, values + area);
        }
        free(rows);
    }
}

typedef struct {
    // Active slots in the order of their samples.
    long count, *slot;
    float *x, *y, *qk, *v, *mixed, *inverse, *cos, *sin, *logits, *z;
    // Of the queries of up to SHARING rows of one prompt, by heads of keys, rows and queries that share keys.
    int32_t *queries, *pairs, *sums;
    float *scores, *query_scale, *weight_scale, *out;
} Block;

INLINE long own_size(const Completions *c) { return c->capacity * c->shared * c->size / 2; }
INLINE int32_t *own_keys(const Completions *c, long slot, long layer) { return c->own + (slot * c->layers + layer) * 2 * own_size(c); }
INLINE float *own_key_scale(const Completions *c, long slot, long layer) {
    return c->own_scale + (slot * c->layers + layer) * 2 * c->capacity * c->shared;
}
INLINE long prompt_of(const Completions *c, long slot) { return c->prompts[c->sample[slot]]; }
INLINE long length_of(const Completions *c, long slot) { return c->lengths[prompt_of(c, slot)]; }
INLINE long common_of(long length) { return length / LANES * LANES; }

// Key (size / 2 pairs, `pitch` from one to the next) and value (size halves, two from one to the next) of one head of a token take
// place t among a slot's own.
INLINE void append(const Completions *c, long slot, long layer, long t, long head, const int32_t *k, long pitch, float k_scale,
                   const int16_t *v, long v_pitch, float v_scale) {
    int32_t *keys = own_keys(c, slot, layer) + (t / LANES * c->shared + head) * c->size / 2 * LANES + t % LANES;
    int16_t *values = (int16_t *)(own_keys(c, slot, layer) + own_size(c) + (t / 2 * c->shared + head) * c->size) + t % 2;
    float *scale = own_key_scale(c, slot, layer) + (t / LANES * c->shared + head) * LANES + t % LANES;
    for (long d = 0; d < c->size / 2; d++) keys[d * LANES] = k[d * pitch];
    for (long d = 0; d < c->size; d++) values[2 * d] = v[d * v_pitch];
    scale[0] = k_scale, scale[c->capacity * c->shared] = v_scale;
}

// The last keys and values of a prompt, which no other sample shares with a slot.
static void copy_end(const Completions *c, long slot, long prompt) {
    const long length = c->lengths[prompt], common = common_of(length);
    for (long l = 0; l < c->layers; l++)
        for (long h = 0; h < c->shared; h++) {
            const DecodeLayer *at = c->layer + l;
            const long item = prompt * c->shared + h, area = item * c->prompt * c->size / 2;
            for (long t = common; t < length; t++)
                append(c, slot, l, t - common, h, at->prompt_keys + area + t, c->prompt, at->key_scale[item * c->prompt + t],
                       (const int16_t *)(at->prompt_values + area + t / 2 * c->size) + t % 2, 2,
                       at->value_scale[item * c->prompt + t]);
        }
}

// The newest key and value of row i of a block.
static void append_row(const Completions *c, const Block *b, long layer, long i) {
    const long slot = b->slot[i], length = length_of(c, slot), t = length - common_of(length) + c->steps[slot] - 1;
    for (long h = 0; h < c->shared; h++) {
        float k_scale, v_scale;
        int32_t *k = b->pairs, *v = b->pairs + c->size / 2;
        pair_rows(b->qk + (i * (c->heads + c->shared) + c->heads + h) * c->size, 1, c->size, 0, k, &k_scale);
        pair_rows(b->v + (i * c->shared + h) * c->size, 1, c->size, 0, v, &v_scale);
        append(c, slot, layer, t, h, k, 1, k_scale, (const int16_t *)v, 1, v_scale);
    }
}

// Attention of the rows first .. first + rows - 1 of a block, samples of one prompt, in a layer.
static void attend(const Completions *c, const Block *b, long layer, long first, long rows) {
    const DecodeLayer *at = c->layer + layer;
    const long group = c->heads / c->shared, size = c->size, stride = (c->heads + c->shared) * size, each = rows * group;
    const long prompt = prompt_of(c, b->slot[first]), length = c->lengths[prompt], common = common_of(length);
    const float scale = 1.0f / sqrtf((float)size);
    long widest = 0;
    for (long i = 0; i < rows; i++) widest = larger_of(widest, common + round_up(length - common + c->steps[b->slot[first + i]]));
    for (long h = 0; h < c->shared; h++) {
        const long item = prompt * c->shared + h, row = h * each;
        for (long i = 0; i < rows; i++) {
            const float *given = b->qk + (first + i) * stride + h * group * size;
            for (long d = 0; d < group * size; d += LANES) store(b->out + i * group * size + d, load(given + d) * scale);
        }
        pair_rows(b->out, each, size, size, b->queries + row * size / 2, b->query_scale + row);
        pair_product((PairLeft){b->queries + row * size / 2, b->query_scale + row, size / 2, 1},
                     (PairRight){at->prompt_keys + item * size / 2 * c->prompt, at->key_scale + item * c->prompt, c->prompt}, each,
                     size / 2, common, b->scores + row * widest, widest, 0);
    }
    // Queries of one row are taken 4 by 4: those that share keys where there are several, else those of further heads of keys.
    const int shares = group > 1;
    const long together = shares ? group : c->shared, between = shares ? 1 : rows, next_head = shares ? 0 : 1;
    for (long i = 0; i < rows; i++) {
        const long slot = b->slot[first + i], seen = length - common + c->steps[slot], width = round_up(seen);
        const int32_t *keys = own_keys(c, slot, layer);
        const float *own_scale = own_key_scale(c, slot, layer), *value_scale = own_scale + c->capacity * c->shared;
        for (long h = 0; h < c->shared; h += shares ? 1 : c->shared)
            for (long u = 0; u < together; u += 4) {
                const long count = smaller_of(4, together - u), row = h * each + i * group + u * between, head = h + u * next_head;
                score(count, b->queries + row * size / 2, b->query_scale + row, between * size / 2, keys + head * size / 2 * LANES,
                      next_head * size / 2 * LANES, c->shared * size / 2 * LANES, own_scale + head * LANES, next_head * LANES,
                      c->shared * LANES, size, width, b->scores + row * widest + common, between * widest);
            }
        for (long h = 0; h < c->heads; h++) {
            const long row = h / group * each + i * group + h % group, head = h / group;
            const float *shared_scale = at->value_scale + (prompt * c->shared + head) * c->prompt;
            float *scores = b->scores + row * widest;
            b->inverse[row] = 1.0f / weigh(scores, common + seen, common + width, highest(scores, common + seen));
            for (long j = 0; j < common; j += LANES) store(scores + j, load(scores + j) * load(shared_scale + j));
            for (long j = 0; j < width; j += LANES)
                store(scores + common + j, load(scores + common + j) * load(value_scale + j * c->shared + head * LANES));
            pair_rows(scores, 1, common + width, 0, b->pairs + row * widest / 2, b->weight_scale + row);
        }
    }
    memset(b->out, 0, (size_t)(rows * c->heads * size) * 4);
    for (long k = 0; k < widest / 2; k += EXACT_PAIRS) {
        const long end = smaller_of(k + EXACT_PAIRS, widest / 2), middle = smaller_of(larger_of(k, common / 2), end);
        memset(b->sums, 0, (size_t)(rows * c->heads * size) * 4);
        for (long h = 0; h < c->shared && k < middle; h++)
            for (long r = 0; r < each; r += 4)
                mix(smaller_of(4, each - r), b->pairs + (h * each + r) * widest / 2 + k, widest / 2,
                    at->prompt_values + (prompt * c->shared + h) * c->prompt * size / 2 + k * size, size, 0, size, middle - k,
                    b->sums + (h * each + r) * size, size);
        for (long i = 0; i < rows; i++) {
            const long slot = b->slot[first + i], last = smaller_of(end, (length + c->steps[slot] + 1) / 2);
            const int32_t *values = own_keys(c, slot, layer) + own_size(c) + (middle - common / 2) * c->shared * size;
            for (long h = 0; h < c->shared && middle < last; h += shares ? 1 : c->shared)
                for (long u = 0; u < together; u += 4) {
                    const long row = h * each + i * group + u * between;
                    mix(smaller_of(4, together - u), b->pairs + row * widest / 2 + middle, between * widest / 2,
                        values + (h + u * next_head) * size, c->shared * size, next_head * size, size, last - middle,
                        b->sums + row * size, between * size);
                }
        }
        for (long row = 0; row < rows * c->heads; row++)
            for (long d = row * size; d < (row + 1) * size; d += LANES)
                store(b->out + d, load(b->out + d) + __builtin_convertvector(*(i16 *)(b->sums + d), v16) * b->weight_scale[row]);
    }
    for (long i = 0; i < rows; i++)
        for (long h = 0; h < c->heads; h++) {
            const long row = h / group * each + i * group + h % group;
            float *place = b->mixed + ((first + i) * c->heads + h) * size;
            for (long d = 0; d < size; d += LANES) store(place + d, load(b->out + row * size + d) * b->inverse[row]);
        }
}

// -- steps -------------------------------------------------------------------------------------------------------------

// One pass over the last tokens of the active slots: logits (count, vocab padded) of those that follow.
static void pass(const Completions *c, Block *b) {
    for (long i = 0; i < b->count; i++) {
        const long slot = b->slot[i], place = length_of(c, slot) + c->steps[slot] - 1;
        const long token = c->tokens[c->sample[slot] * c->length + c->steps[slot] - 1];
        memcpy(b->x + i * c->width, c->embedding + token * c->width, (size_t)c->width * 4);
        memcpy(b->cos + i * c->size, c->cos + place * c->size, (size_t)c->size * 4);
        memcpy(b->sin + i * c->size, c->sin + place * c->size, (size_t)c->size * 4);
    }
    const Rope rope = {b->cos, b->sin, b->count, 0, c->size};
    const Heads heads = {b->count, c->width, c->heads + c->shared, c->shared, c->size, c->eps};
    const Mlp mlp = {b->count, c->width, c->heads * c->size, c->hidden, c->eps};
    for (long l = 0; l < c->layers; l++) {
        const DecodeLayer *at = c->layer + l;
        before_forward(&heads, &rope, b->x, at->attention_norm, at->qkv, at->bias, at->qk_norm, b->inverse, 0, b->qk, b->v);
        for (long i = 0; i < b->count; i++) append_row(c, b, l, i);
        for (long i = 0, next; i < b->count; i = next) {
            next = i + 1;
            while (next < b->count && next < i + SHARING && prompt_of(c, b->slot[next]) == prompt_of(c, b->slot[i])) next++;
            attend(c, b, l, i, next - i);
        }
        after_forward(&mlp, b->x, b->mixed, at->mlp_norm, at->out, at->gate_up, at->down, 0, 0, 0, b->y);
        float *swapped = b->x;
        b->x = b->y, b->y = swapped;
    }
    for (long i = 0; i < b->count; i++) {
        const float *row = b->x + i * c->width;
        scaled(row, inverse_rms(row, c->width, c->eps), c->norm, c->width, b->y + i * c->width);
    }
    head_product(b->y, c->head, b->count, c->width, round_up(c->vocab), b->logits);
}

// Give free slots the samples that wait, whose first tokens come from their prompt alone, and list the active slots.
static void refill(const Completions *c, Block *b, long first) {
    b->count = 0;
    for (long slot = first; slot < first + c->slots; slot++) {
        while (c->sample[slot] < 0) {
            int64_t next;
#pragma omp atomic capture
            next = (*c->waiting)++;
            if (next >= c->samples) break;
            const long prompt = c->prompts[next];
            if (draw(c, c->first + prompt * round_up(c->vocab), next, 0, b->z)) continue;
            c->sample[slot] = next, c->steps[slot] = 1;
            copy_end(c, slot, prompt);
        }
        if (c->sample[slot] < 0) continue;
        long i = b->count++;
        for (; i > 0 && c->sample[b->slot[i - 1]] > c->sample[slot]; i--) b->slot[i] = b->slot[i - 1];
        b->slot[i] = slot;
    }
}

// Up to `budget` steps of each of `blocks` blocks of slots, each by one thread.
void complete(const Completions *completions, long blocks, long budget) {
    const Completions c = *completions;
    const long padded = round_up(c.vocab), widest = round_up(c.prompt) + c.capacity, most = c.slots * c.heads * c.size;
    const long rows = SHARING * c.heads;
#pragma omp parallel for schedule(dynamic)
    for (long block = 0; block < blocks; block++) {
        Block b = {.slot = aligned(c.slots * (long)sizeof(long)),
                   .x = floats(c.slots * c.width),
                   .y = floats(c.slots * c.width),
                   .qk = floats(most + c.slots * c.shared * c.size),
                   .v = floats(c.slots * c.shared * c.size),
                   .mixed = floats(most),
                   .inverse = floats(larger_of(c.slots, rows)),
                   .cos = floats(c.slots * c.size),
                   .sin = floats(c.slots * c.size),
                   .logits = floats(c.slots * padded),
                   .z = floats(padded),
                   .queries = aligned(rows * c.size * 2),
                   .pairs = aligned(rows * widest * 2 + 4 * c.size),
                   .sums = aligned(rows * c.size * 4),
                   .scores = floats(rows * widest),
                   .query_scale = floats(rows),
                   .weight_scale = floats(rows),
                   .out = floats(rows * c.size)};
        for (long step = 0; step < budget; step++) {
            refill(&c, &b, block * c.slots);
            if (!b.count) break;
            pass(&c, &b);
            for (long i = 0; i < b.count; i++) {
                const long slot = b.slot[i];
                if (draw(&c, b.logits + i * padded, c.sample[slot], c.steps[slot]++, b.z)) c.sample[slot] = -1;
            }
        }
        free(b.slot), free(b.x), free(b.y), free(b.qk), free(b.v), free(b.mixed), free(b.inverse), free(b.cos), free(b.sin);
        free(b.logits), free(b.z), free(b.queries), free(b.pairs), free(b.sums), free(b.scores), free(b.query_scale);
        free(b.weight_scale), free(b.out);
    }
}
