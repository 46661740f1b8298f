// Completions of prompts, from the first token to the last: a block of slots takes one sample after the other through all layers,
// and a slot whose sample ends takes the next one. A token depends on its own prompt, tokens and noise alone, so that neither
// the number of slots nor of threads changes a byte. Keys and values of few slots stay in the cache of the processor.
//
// Attention has the operations of `attention_forward` in their order: a prompt's keys up to the last multiple of 16 lie once for
// all of its samples, and what is left of them begins each sample's own, followed by the history of an episode that goes on.

#include "attention.h"
#include "layer.h"

#define PANEL (4 * LANES)
#define SHARING 8

typedef struct {
    const float *attention_norm;
    const uint8_t *qkv;
    const float *bias, *qk_norm;
    const uint8_t *out;
    const float *mlp_norm;
    const uint8_t *gate_up, *down;
    // Of each prompt: keys (shared, size, prompt) and values (shared, prompt, size).
    const float *prompt_keys, *prompt_values;
} DecodeLayer;

typedef struct {
    long layers, width, hidden, heads, shared, size, vocab;
    // Padded length of prompts, a multiple of 16; most new tokens of a sample; samples; room for own keys, a multiple of 16.
    long prompt, length, samples, capacity;
    // Slots of a block; the token that ends a sample, or -1; places of `past`.
    long slots, eos, top_k, places;
    float eps, temperature, top_p;
    const DecodeLayer *layer;
    // embedding (vocab, width); head as `head_product` wants it; cosines and sines (positions, size); logits (requests, vocab
    // padded) of first tokens.
    const float *embedding, *norm, *head, *cos, *sin, *first;
    // Tokens of each prompt; prompt and request of each sample; noise (samples, length).
    const int64_t *lengths, *prompts, *requests;
    const double *noise;
    // Of each request: tokens behind its prompt; where in `past` its first ones lie, prompt included, and where the others; how many
    // the first are. Keys, then values, (layers, 2, places, shared, size).
    const int64_t *history;
    const float *past;
    // Of each slot and layer: keys (capacity / 16, shared, size, 16), then values (capacity, shared, size).
    float *own;
    int64_t *tokens;
    float *logprobs;
    // State: sample of each slot (-1: free) and how many tokens it has; the next sample that waits.
    int64_t *sample, *steps, *waiting;
    // Keys, then values, of all tokens of each sample but the last: (samples, layers, 2, length, shared, size); null: not kept.
    float *made;
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

// The token whose interval of the cumulative distribution holds noise in (0, 1): the first whose sum exceeds it. Sums of 16 are of
// float32, sums of those of float64. `weights` are exp(z - peak), zeros at the end.
INLINE long drawn(const float *weights, long count, double total, double noise) {
    const double target = noise * total;
    double sum = 0.0;
    long block = 0, last = 0;
    for (; block + LANES < count; block += LANES) {
        const double next = sum + lane_sum(load_lanes(weights + block));
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
        Lanes kept = load_lanes(weights + n);
        for (int p = 0; p < PARTS; p++) {
            const vec w = kept.part[p];
            kept.part[p] = (vec)((ivec)(number ? splat(1.0f) : w) & (w >= least));
        }
        total += lane_sum(kept);
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
    for (long n = 0; n < padded; n += PART) store(z + n, load(logits + n) / temperature);
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

// Scores of `count` queries, `pitch` floats from one to the next, over 16 keys (size, 16), `step` floats to those of the next.
INLINE void own_scores(int count, const float *queries, long pitch, const float *keys, long step, long size, float *out, long ld) {
    vec sums[4][PARTS];
    for (int u = 0; u < count; u++)
        for (int p = 0; p < PARTS; p++) sums[u][p] = (vec){0};
    for (long d = 0; d < size; d++)
        for (int u = 0; u < count; u++)
            for (int p = 0; p < PARTS; p++)
                sums[u][p] = fma_sum(sums[u][p], splat(queries[u * pitch + d]), load(keys + u * step + d * LANES + p * PART));
    for (int u = 0; u < count; u++)
        for (int p = 0; p < PARTS; p++) store(out + u * ld + p * PART, sums[u][p]);
}

// out (count, vectors * 16), `pitch` floats from one to the next, += weights (count, seen), `ld` from one to the next, times values, of which
// `stride` floats separate two tokens and `step` those of two weights.
INLINE void own_values(int count, int vectors, const float *weights, long ld, const float *values, long stride, long step, long seen,
                       float *out, long pitch) {
    vec sums[4][4 * PARTS];
    for (int u = 0; u < count; u++)
        for (int v = 0; v < vectors * PARTS; v++) sums[u][v] = load(out + u * pitch + v * PART);
    for (long t = 0; t < seen; t++, values += stride)
        for (int u = 0; u < count; u++) {
            const vec weight = splat(weights[u * ld + t]);
            for (int v = 0; v < vectors * PARTS; v++) sums[u][v] = fma_sum(sums[u][v], weight, load(values + u * step + v * PART));
        }
    for (int u = 0; u < count; u++)
        for (int v = 0; v < vectors * PARTS; v++) store(out + u * pitch + v * PART, sums[u][v]);
}

#define BY_COUNT(call)                                                                                                           \
    switch (count) {                                                                                                             \
        case 1: call(1); break;                                                                                                  \
        case 2: call(2); break;                                                                                                  \
        case 3: call(3); break;                                                                                                  \
        default: call(4);                                                                                                        \
    }

// Scores of `count` (at most 4) queries over `width` own keys.
static void score(long count, const float *queries, long pitch, const float *keys, long step, long block, long size, long width,
                  float *out, long ld) {
#define SCORES(N) own_scores(N, queries, pitch, keys + j / LANES * block, step, size, out + j, ld)
    for (long j = 0; j < width; j += LANES) BY_COUNT(SCORES)
}

// Weighted own values of `count` (at most 4) queries.
static void mix(long count, const float *weights, long ld, const float *values, long stride, long step, long size, long seen,
                float *out, long pitch) {
    for (long n = 0; n < size; n += PANEL) {
        const float *given = values + n;
        float *place = out + n;
#define VALUES(N)                                                                                                                \
    if (size - n >= PANEL) own_values(N, 4, weights, ld, given, stride, step, seen, place, pitch);                                \
    else if (size - n == 3 * LANES) own_values(N, 3, weights, ld, given, stride, step, seen, place, pitch);                       \
    else if (size - n == 2 * LANES) own_values(N, 2, weights, ld, given, stride, step, seen, place, pitch);                       \
    else own_values(N, 1, weights, ld, given, stride, step, seen, place, pitch)
        BY_COUNT(VALUES)
    }
}

typedef struct {
    // Active slots in the order of their samples.
    long count, *slot;
    float *x, *y, *qk, *v, *mixed, *inverse, *cos, *sin, *logits, *z;
    float *queries, *scores, *out;
} Block;

INLINE long own_size(const Completions *c) { return c->capacity * c->shared * c->size; }
INLINE float *own_keys(const Completions *c, long slot, long layer) { return c->own + (slot * c->layers + layer) * 2 * own_size(c); }
INLINE long prompt_of(const Completions *c, long slot) { return c->prompts[c->sample[slot]]; }
INLINE long length_of(const Completions *c, long slot) { return c->lengths[prompt_of(c, slot)]; }
INLINE long common_of(long length) { return length / LANES * LANES; }
INLINE const int64_t *history_of(const Completions *c, long sample) { return c->history + c->requests[sample] * 4; }
// Tokens before a sample's first, and how many of them lie with its own.
INLINE long before_of(const Completions *c, long slot) { return length_of(c, slot) + *history_of(c, c->sample[slot]); }
INLINE long own_before(const Completions *c, long slot) { return before_of(c, slot) - common_of(length_of(c, slot)); }

// Key and value (shared, size) of one token take place t among a slot's own.
INLINE void append(const Completions *c, float *keys, long t, const float *k, const float *v) {
    const long width = c->shared * c->size;
    float *place = keys + t / LANES * LANES * width + t % LANES;
    for (long d = 0; d < width; d++) place[d * LANES] = k[d];
    memcpy(keys + own_size(c) + t * width, v, (size_t)width * 4);
}

// Leave key and value (shared, size) of token `step` of a sample to those who continue it.
INLINE void keep(const Completions *c, long sample, long layer, long step, const float *k, const float *v) {
    const long width = c->shared * c->size;
    float *place = c->made + ((sample * c->layers + layer) * 2 * c->length + step) * width;
    memcpy(place, k, (size_t)width * 4);
    memcpy(place + c->length * width, v, (size_t)width * 4);
}

// Attention of the rows first .. first + rows - 1 of a block, samples of one prompt, in a layer.
static void attend(const Completions *c, const Block *b, long layer, long first, long rows) {
    const DecodeLayer *at = c->layer + layer;
    const long group = c->heads / c->shared, size = c->size, stride = (c->heads + c->shared) * size, each = rows * group;
    const long prompt = prompt_of(c, b->slot[first]), common = common_of(c->lengths[prompt]);
    const float scale = 1.0f / sqrtf((float)size);
    long widest = 0;
    for (long i = 0; i < rows; i++) {
        const long slot = b->slot[first + i];
        widest = larger_of(widest, common + round_up(own_before(c, slot) + c->steps[slot]));
    }
    for (long h = 0; h < c->shared; h++) {
        const long item = prompt * c->shared + h;
        float *queries = b->queries + h * each * size;
        for (long i = 0; i < rows; i++) {
            const float *given = b->qk + (first + i) * stride + h * group * size;
            for (long d = 0; d < group * size; d++) queries[i * group * size + d] = given[d] * scale;
        }
        float_product(queries, size, 1, at->prompt_keys + item * size * c->prompt, c->prompt, each, common, size,
                      b->scores + h * each * widest, widest, 0);
    }
    // Queries of one row are 4 by 4: those of heads that share keys where there are several, else those of further heads.
    const long across = group > 1 ? 1 : c->shared, unit = group > 1 ? group : 1;
    const long between = group > 1 ? 1 : rows, key_step = group > 1 ? 0 : size * LANES, value_step = group > 1 ? 0 : size;
    for (long i = 0; i < rows; i++) {
        const long slot = b->slot[first + i], seen = own_before(c, slot) + c->steps[slot], width = round_up(seen);
        const float *keys = own_keys(c, slot, layer);
        for (long h = 0; h < c->shared; h += across)
            for (long u = 0; u < across * unit; u += 4) {
                const long count = smaller_of(4, across * unit - u), row = h * each + i * unit + u * between;
                const float *given = keys + (h * size + (group > 1 ? 0 : u * size)) * LANES;
                score(count, b->queries + row * size, between * size, given, key_step, c->shared * size * LANES, size, width,
                      b->scores + row * widest + common, between * widest);
            }
        for (long h = 0; h < c->heads; h++) {
            const long row = h / group * each + i * group + h % group;
            float *scores = b->scores + row * widest;
            b->inverse[row] = 1.0f / weigh(scores, common + seen, common + width, highest(scores, common + seen));
        }
    }
    for (long h = 0; h < c->shared; h++)
        float_product(b->scores + h * each * widest, widest, 1, at->prompt_values + (prompt * c->shared + h) * c->prompt * size, size,
                      each, size, common, b->out + h * each * size, size, 0);
    for (long i = 0; i < rows; i++) {
        const long slot = b->slot[first + i], seen = own_before(c, slot) + c->steps[slot];
        const float *values = own_keys(c, slot, layer) + own_size(c);
        for (long h = 0; h < c->shared; h += across)
            for (long u = 0; u < across * unit; u += 4) {
                const long count = smaller_of(4, across * unit - u), row = h * each + i * unit + u * between;
                mix(count, b->scores + row * widest + common, between * widest, values + (h + (group > 1 ? 0 : u)) * size,
                    c->shared * size, value_step, size, seen, b->out + row * size, between * size);
            }
        for (long h = 0; h < c->heads; h++) {
            const long row = h / group * each + i * group + h % group;
            float *place = b->mixed + ((first + i) * c->heads + h) * size;
            for (long d = 0; d < size; d++) place[d] = b->out[row * size + d] * b->inverse[row];
        }
    }
}

// -- steps -------------------------------------------------------------------------------------------------------------

// One pass over the last tokens of the active slots: logits (count, vocab padded) of those that follow.
static void pass(const Completions *c, Block *b) {
    const long stride = (c->heads + c->shared) * c->size;
    for (long i = 0; i < b->count; i++) {
        const long slot = b->slot[i], place = before_of(c, slot) + c->steps[slot] - 1;
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
        for (long i = 0; i < b->count; i++) {
            const long slot = b->slot[i], step = c->steps[slot] - 1;
            const float *k = b->qk + i * stride + c->heads * c->size, *v = b->v + i * c->shared * c->size;
            append(c, own_keys(c, slot, l), own_before(c, slot) + step, k, v);
            if (c->made) keep(c, c->sample[slot], l, step, k, v);
        }
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

// What precedes a sample's first token and does not lie with its prompt's keys: from token `first` on.
static void recall(const Completions *c, long sample, long layer, long first, float *own) {
    const long width = c->shared * c->size, length = c->lengths[c->prompts[sample]];
    const int64_t *history = history_of(c, sample);
    for (long t = first; t < length + history[0]; t++) {
        const long place = t < history[3] ? history[1] + t : history[2] + t - history[3];
        const float *k = c->past + (layer * 2 * c->places + place) * width;
        append(c, own, t - first, k, k + c->places * width);
    }
}

// Give free slots the samples that wait, whose first tokens come from their request alone, and list the active slots.
static void refill(const Completions *c, Block *b, long first) {
    b->count = 0;
    for (long slot = first; slot < first + c->slots; slot++) {
        while (c->sample[slot] < 0) {
            int64_t next;
#pragma omp atomic capture
            next = (*c->waiting)++;
            if (next >= c->samples) break;
            if (draw(c, c->first + c->requests[next] * round_up(c->vocab), next, 0, b->z)) continue;
            c->sample[slot] = next, c->steps[slot] = 1;
            for (long l = 0; l < c->layers; l++) recall(c, next, l, common_of(length_of(c, slot)), own_keys(c, slot, l));
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
#pragma omp parallel for schedule(dynamic)
    for (long block = 0; block < blocks; block++) {
        Block b = {.slot = aligned(c.slots * (long)sizeof(long)),
                   .x = floats(c.slots * c.width),
                   .y = floats(c.slots * c.width),
                   .qk = floats(most + c.slots * c.shared * c.size),
                   .v = floats(c.slots * c.shared * c.size),
                   .mixed = floats(most),
                   .inverse = floats(c.slots * c.heads),
                   .cos = floats(c.slots * c.size),
                   .sin = floats(c.slots * c.size),
                   .logits = floats(c.slots * padded),
                   .z = floats(padded),
                   .queries = floats(SHARING * c.heads * c.size),
                   .scores = floats(SHARING * c.heads * widest),
                   .out = floats(SHARING * c.heads * c.size)};
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
        free(b.logits), free(b.z), free(b.queries), free(b.scores), free(b.out);
    }
}
