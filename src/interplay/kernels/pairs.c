#include "pairs.h"

// Pairs whose sum fits into 32 bits: 2047 * 2047 * 512 < 2^31. Longer sums are cut there, and the parts added in order.
#define EXACT_PAIRS 256

// -- operands ----------------------------------------------------------------------------------------------------------

INLINE i16 integers(const float *x, v16 inverse) { return __builtin_convertvector(nearest(load(x) * inverse), i16); }

INLINE void store_halves(int32_t *out, i16 x) {
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)out, _mm512_cvtepi32_epi16((__m512i)x));
#else
    int16_t *place = (int16_t *)out;
    for (int i = 0; i < LANES; i++) place[i] = (int16_t)x[i];
#endif
}

void pair_rows(const float *x, long rows, long width, long ld, float top, int32_t *pairs, float *scale) {
    for (long m = 0; m < rows; m++, x += ld, pairs += width / 2) {
        float inverse;
        scale[m] = power_of_two(row_peak(x, width), top, &inverse);
        const v16 by = splat(inverse);
        for (long k = 0; k < width; k += LANES) store_halves(pairs + k / 2, integers(x + k, by));
    }
}

void pair_columns(const float *x, long rows, long width, long ld, float top, int32_t *pairs, float *scale) {
    for (long n = 0; n < width; n += LANES) {
        v16 peak = {0}, inverses;
        for (long t = 0; t < rows; t++) peak = larger(absolute(load(x + t * ld + n)), peak);
        store(scale + n, powers_of_two(peak, top, &inverses));
        for (long t = 0; t < rows; t += 2) {
            const i16 first = integers(x + t * ld + n, inverses);
            const i16 second = t + 1 < rows ? integers(x + (t + 1) * ld + n, inverses) : (i16){0};
            *(i16 *)(pairs + t / 2 * width + n) = (first & 0xffff) | second << 16;
        }
    }
}

void pairs_transposed(const int32_t *x, long rows, long width, int32_t *out) {
    const long columns = width / 2;
    for (long m = 0; m < rows; m += LANES) {
        long k = 0;
        for (; k + LANES <= columns; k += LANES) transpose16(x + m * columns + k, columns, out + k * rows + m, rows);
        for (; k < columns; k++)
            for (long i = 0; i < LANES; i++) out[k * rows + m + i] = x[(m + i) * columns + k];
    }
}

void pairs_interleaved(const int32_t *x, long rows, long width, int32_t *restrict out) {
    const long columns = width / 2;
    for (long m = 0; m < rows; m += 2, out += width)
        for (long k = 0; k < columns; k++) {
            const int32_t first = x[m * columns + k], second = x[(m + 1) * columns + k];
            out[2 * k] = (first & 0xffff) | second << 16;
            out[2 * k + 1] = (int32_t)((uint32_t)first >> 16) | (second & (int32_t)0xffff0000);
        }
}

// -- product -----------------------------------------------------------------------------------------------------------

INLINE i16 pair_products(i16 sum, i16 a, i16 b) {
#if defined(__AVX512VNNI__)
    // By hand: GCC 12 copies the sums of the intrinsic function at each round.
    asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
#elif defined(__AVX512BW__)
    return sum + (i16)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    i16 out;
    for (int i = 0; i < LANES; i += 8) {
        __m256i part = _mm256_loadu_si256((const __m256i *)((const int32_t *)&b + i));
        _mm256_storeu_si256((__m256i *)((int32_t *)&out + i), _mm256_madd_epi16(_mm256_set1_epi32(a[0]), part));
    }
    return sum + out;
#else
    return sum + ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
}

#define TILE 6

INLINE void tile(int rows, int vectors, const int32_t *a, long row, long step, const int32_t *b, long ldb, long pairs,
                 const float *ls, const float *rs, float *out, long ld, float factor) {
    i16 sums[TILE][4];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sums[r][v] = (i16){0};
    for (long k = 0; k < pairs; k++, a += step, b += ldb) {
        i16 values[4];
        for (int v = 0; v < vectors; v++) values[v] = *(const i16 *)(b + v * LANES);
        for (int r = 0; r < rows; r++) {
            const i16 left = (i16){0} + a[r * row];
            for (int v = 0; v < vectors; v++) sums[r][v] = pair_products(sums[r][v], left, values[v]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            float *place = out + r * ld + v * LANES;
            v16 value = __builtin_convertvector(sums[r][v], v16) * (ls[r] * load(rs + v * LANES));
            if (factor != 0.0f) value = load(place) * factor + value;
            store(place, value);
        }
}

#define TILE_CASE(R)                                                                                                             \
    case R:                                                                                                                      \
        if (vectors == 4) tile(R, 4, a, left.row, left.step, b, right.ld, pairs, ls, rs, place, ld, factor);                     \
        else if (vectors == 3) tile(R, 3, a, left.row, left.step, b, right.ld, pairs, ls, rs, place, ld, factor);                \
        else if (vectors == 2) tile(R, 2, a, left.row, left.step, b, right.ld, pairs, ls, rs, place, ld, factor);                \
        else tile(R, 1, a, left.row, left.step, b, right.ld, pairs, ls, rs, place, ld, factor);                                  \
        break;

void pair_product_once(PairLeft left, PairRight right, long rows, long pairs, long first, long last, float *out, long ld,
                       float factor) {
    for (long n = first; n < last; n += 4 * LANES) {
        const int vectors = last - n >= 4 * LANES ? 4 : (int)((last - n) / LANES);
        const int32_t *b = right.pairs + n;
        const float *rs = right.scale + n;
        for (long m = 0; m < rows; m += TILE) {
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
    for (long k = 0; k < pairs; k += EXACT_PAIRS) {
        const PairLeft a = {left.pairs + k * left.step, left.scale, left.row, left.step};
        const PairRight b = {right.pairs + k * right.ld, right.scale, right.ld};
        pair_product_once(a, b, rows, smaller_of(EXACT_PAIRS, pairs - k), 0, columns, out, ld, add || k > 0 ? 1.0f : 0.0f);
    }
}
