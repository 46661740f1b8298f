#include "pairs.h"

// Pairs whose sum fits into 32 bits: 2047 * 2047 * 512 < 2^31. Longer sums are cut there, and the parts added in order.
#define EXACT_PAIRS 256

// -- operands ----------------------------------------------------------------------------------------------------------

INLINE ivec integers(const float *x, vec inverse) { return whole(load(x), inverse, 0.0f); }

INLINE void store_halves(int32_t *out, ivec x) {
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)out, _mm512_cvtepi32_epi16((__m512i)x));
#else
    int16_t *place = (int16_t *)out;
    for (int i = 0; i < PART; i++) place[i] = (int16_t)x[i];
#endif
}

// Rows whose memory is asked for before they are read.
#define AHEAD 8

void pair_rows(const float *x, long rows, long width, long ld, float top, int32_t *pairs, float *scale) {
    for (long m = 0; m < rows; m++, x += ld, pairs += width / 2) {
        float inverse;
        if (ld != width) ask_for(x + AHEAD * ld, 1, width, ld);
        scale[m] = power_of_two(row_peak(x, width), top, &inverse);
        const vec by = splat(inverse);
        for (long k = 0; k < width; k += PART) store_halves(pairs + k / 2, integers(x + k, by));
    }
}

void pair_columns(const float *x, long rows, long width, long ld, float top, int32_t *pairs, float *scale) {
    for (long n = 0; n < width; n += PART) {
        vec peak = {0}, inverses;
        for (long t = 0; t < rows; t++) peak = larger(absolute(load(x + t * ld + n)), peak);
        store(scale + n, powers_of_two(peak, top, &inverses));
        for (long t = 0; t < rows; t += 2) {
            const ivec first = integers(x + t * ld + n, inverses);
            const ivec second = t + 1 < rows ? integers(x + (t + 1) * ld + n, inverses) : (ivec){0};
            *(ivec *)(pairs + t / 2 * width + n) = (first & 0xffff) | second << 16;
        }
    }
}

void pairs_transposed(const int32_t *x, long rows, long width, int32_t *out, long ld) {
    const long columns = width / 2;
    for (long m = 0; m < rows; m += LANES) {
        long k = 0;
        for (; k + LANES <= columns; k += LANES) transpose16(x + m * columns + k, columns, out + k * ld + m, ld);
        for (; k < columns; k++)
            for (long i = 0; i < LANES; i++) out[k * ld + m + i] = x[(m + i) * columns + k];
    }
}

void pairs_interleaved(const int32_t *x, long rows, long width, int32_t *restrict out) {
    const long columns = width / 2;
    for (long m = 0; m < rows; m += 2, out += width)
        for (long k = 0; k < columns; k++) {
            const int32_t first = x[m * columns + k], second = x[(m + 1) * columns + k];
            out[2 * k] = (first & 0xffff) | (int32_t)((uint32_t)second << 16);
            out[2 * k + 1] = (int32_t)((uint32_t)first >> 16) | (second & (int32_t)0xffff0000);
        }
}

// -- product -----------------------------------------------------------------------------------------------------------

// A tile of `rows` (at most TILE_ROWS) by `vectors` * 16 columns (at most TILE_VECTORS); constants once it is inlined.
INLINE void tile(int rows, int vectors, const int32_t *a, long row, long step, const int32_t *b, long ldb, long pairs,
                 const float *ls, const float *rs, float *out, long ld, float factor) {
    ivec sums[TILE_ROWS][TILE_VECTORS * PARTS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors * PARTS; v++) sums[r][v] = (ivec){0};
    for (long k = 0; k < pairs; k++, a += step, b += ldb) {
        ivec values[TILE_VECTORS * PARTS];
        for (int v = 0; v < vectors * PARTS; v++) values[v] = *(const ivec *)(b + v * PART);
        for (int r = 0; r < rows; r++) {
            const ivec left = (ivec){0} + a[r * row];
            for (int v = 0; v < vectors * PARTS; v++) sums[r][v] = pair_sum(sums[r][v], left, values[v]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors * PARTS; v++) {
            vec *place = (vec *)(out + r * ld + v * PART);
            vec value = __builtin_convertvector(sums[r][v], vec) * (ls[r] * *(const vec *)(rs + v * PART));
            if (factor != 0.0f) value = *place * factor + value;
            *place = value;
        }
}

#define TILE_OF(R, V) tile(R, V, a, left.row, left.step, b, right.ld, pairs, ls, rs, place, ld, factor)
#define TILE_CASE(R)                                                                                                             \
    case R:                                                                                                                      \
        BY_VECTORS(R)                                                                                                            \
        break;

void pair_product_once(PairLeft left, PairRight right, long rows, long pairs, long first, long last, float *out, long ld,
                       float factor) {
    for (long n = first; n < last; n += TILE_VECTORS * LANES) {
        const int vectors = (int)smaller_of(TILE_VECTORS, (last - n) / LANES);
        const int32_t *b = right.pairs + n;
        const float *rs = right.scale + n;
        for (long m = 0; m < rows; m += TILE_ROWS) {
            const int32_t *a = left.pairs + m * left.row;
            const float *ls = left.scale + m;
            float *place = out + m * ld + n;
            switch (rows - m) {
                TILE_CASE(1)
                TILE_CASE(2)
                TILE_CASE(3)
                TILE_CASE(4)
                TILE_CASE(5)
                default:
                    TILE_CASE(6)
            }
        }
    }
}

void pair_product(PairLeft left, PairRight right, long rows, long pairs, long columns, float *out, long ld, int add) {
    // Of no summands one part, which is 0.
    for (long k = 0; k < larger_of(pairs, 1); k += EXACT_PAIRS) {
        const PairLeft a = {left.pairs + k * left.step, left.scale, left.row, left.step};
        const PairRight b = {right.pairs + k * right.ld, right.scale, right.ld};
        pair_product_once(a, b, rows, smaller_of(EXACT_PAIRS, pairs - k), 0, columns, out, ld, add || k > 0 ? 1.0f : 0.0f);
    }
}
