#include "pairs.h"
#include "products.h"

// -- operands ----------------------------------------------------------------------------------------------------------

// The lowest byte of each lane.
INLINE void store_bytes(uint8_t *out, ivec x) {
#if defined(__AVX512F__)
    _mm_storeu_si128((__m128i *)out, _mm512_cvtepi32_epi8((__m512i)x));
#else
    for (int i = 0; i < PART; i++) out[i] = (uint8_t)x[i];
#endif
}

INLINE void quantise_row(const float *x, long width, uint8_t *bytes, float peak, float *scale) {
    float inverse;
    *scale = power_of_two(peak, 127.0f, &inverse);
    const vec by = splat(inverse);
    for (long k = 0; k < width; k += PART) store_bytes(bytes + k, whole(load(x + k), by, 128.0f));
}

// The largest |x| of a row, and the larger of that in each column and of `peaks`.
INLINE float both_peaks(const float *x, long width, float *peaks) {
    vec peak = {0};
    for (long k = 0; k < width; k += PART) {
        const vec value = absolute(load(x + k));
        peak = larger(value, peak);
        store(peaks + k, larger(value, load(peaks + k)));
    }
    return lane_max(peak);
}

void quantise_rows(const float *x, long rows, long width, uint8_t *bytes, float *scale, float *peaks) {
    for (long m = 0; m < rows; m++, x += width, bytes += width)
        quantise_row(x, width, bytes, peaks ? both_peaks(x, width, peaks) : row_peak(x, width), scale + m);
}

void column_peaks(const float *x, long rows, long width, float *peaks) {
    for (long m = 0; m < rows; m++, x += width)
        for (long k = 0; k < width; k += PART) store(peaks + k, larger(absolute(load(x + k)), load(peaks + k)));
}

// The lowest bytes of four rows, interleaved: [16][4].
INLINE ivec four_bytes(ivec a, ivec b, ivec c, ivec d) { return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | d << 24; }

// sum + 128 times the four signed bytes of each lane.
INLINE ivec add_offset(ivec sum, ivec bytes) {
#if defined(__AVX512VNNI__)
    return (ivec)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi8((char)128), (__m512i)bytes);
#else
    return sum + ((bytes << 24 >> 24) + (bytes << 16 >> 24) + (bytes << 8 >> 24) + (bytes >> 24)) * 128;
#endif
}

void quantise_columns(const float *x, long rows, long width, const float *peaks, uint8_t *bytes, float *scale, int32_t *offset) {
    const long padded = (rows + 3) / 4 * 4;
    const float shift = offset ? 0.0f : 128.0f;
    float *inverse = floats(width);
    for (long n = 0; n < width; n += PART) {
        vec by;
        store(scale + n, powers_of_two(load(peaks + n), 127.0f, &by));
        store(inverse + n, by);
    }
    if (offset) memset(offset, 0, (size_t)width * 4);
    for (long t = 0; t < rows; t += 4) {
        const long some = smaller_of(4, rows - t);
        const float *row = x + t * width;
        for (long n = 0; n < width; n += PART) {
            const long panel = offset ? n / PANEL_COLUMNS * PANEL_COLUMNS : 0;
            const long ld = smaller_of(offset ? PANEL_COLUMNS : width, width - panel);
            const vec by = load(inverse + n);
            ivec four[4];
            for (long i = 0; i < 4; i++) four[i] = whole(i < some ? load(row + i * width + n) : (vec){0}, by, shift);
            const ivec packed = four_bytes(four[0], four[1], four[2], four[3]);
            if (offset) *(ivec *)(offset + n) = add_offset(*(ivec *)(offset + n), packed);
            *(ivec *)(bytes + panel * padded + (n - panel) * 4 + t * ld) = packed;
        }
    }
    free(inverse);
}

void quantise_transposed(const float *w, long rows, long width, int8_t *bytes, float *scale, int32_t *offset) {
    // 16 rows at a time as bytes, whose groups of four are then transposed as integers of 32 bits.
    uint8_t *some = aligned(LANES * width);
    const long fours = width / 4;
    int32_t *out = (int32_t *)bytes;
    for (long n = 0; n < rows; n += LANES) {
        for (long i = 0; i < LANES; i++, w += width) {
            float inverse;
            scale[n + i] = power_of_two(row_peak(w, width), 127.0f, &inverse);
            const vec by = splat(inverse);
            ivec sum = {0};
            for (long k = 0; k < width; k += PART) {
                const vec values = nearest(load(w + k) * by);
                sum += __builtin_convertvector(values, ivec);
                store_bytes(some + i * width + k, __builtin_convertvector(values, ivec));
            }
            int32_t total = 0;
            for (int lane = 0; lane < PART; lane++) total += sum[lane];
            offset[n + i] = 128 * total;
        }
        const int32_t *given = (const int32_t *)some;
        const long panel = n / PANEL_COLUMNS * PANEL_COLUMNS, columns = smaller_of(PANEL_COLUMNS, rows - panel);
        int32_t *place = out + panel * fours + n - panel;
        long k = 0;
        for (; k + LANES <= fours; k += LANES) transpose16(given + k, fours, place + k * columns, columns);
        for (; k < fours; k++)
            for (long i = 0; i < LANES; i++) place[k * columns + i] = given[i * fours + k];
    }
    free(some);
}

// -- integer product ---------------------------------------------------------------------------------------------------

#if defined(__AVX512VNNI__)

#define TILE 6

// A tile of `rows` (at most TILE) by `vectors` * 16 columns (at most 64); constants once it is inlined.
INLINE void tile(int rows, int vectors, Left left, Right right, long m, long n, long summed, float *out, long ld, const float *base) {
    ivec sums[TILE][4];
    // Unrolled, so that the sums are registers from the start.
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sums[r][v] = -*(const ivec *)(right.offset + n + v * LANES);
    const uint8_t *a = left.bytes + m * left.row;
    const int8_t *b = right.bytes + n * summed;
    for (long k = 0; k < summed; k += 4, a += left.step, b += vectors * LANES * 4)
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, a + r * left.row, 4);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                sums[r][v] = (ivec)_mm512_dpbusd_epi32((__m512i)sums[r][v], _mm512_set1_epi32(four),
                                                      _mm512_loadu_si512(b + v * LANES * 4));
        }
    out += m * ld + n;
    if (base) base += m * ld + n;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            vec value = __builtin_convertvector(sums[r][v], vec) * (left.scale[m + r] * load(right.scale + n + v * LANES));
            if (base) value = load(base + r * ld + v * LANES) + value;
            store(out + r * ld + v * LANES, value);
        }
}

#define TILE_OF(R, V) tile(R, V, left, right, m, n, summed, out, ld, base)
#define TILE_CASE(R)                                                                                                             \
    case R:                                                                                                                      \
        BY_VECTORS(R)                                                                                                            \
        break;

void product(Left left, Right right, long rows, long summed, float *out, long ld, const float *base) {
    for (long n = 0; n < right.columns; n += PANEL_COLUMNS) {
        const int vectors = (int)(smaller_of(PANEL_COLUMNS, right.columns - n) / LANES);
        for (long m = 0; m < rows; m += TILE) switch (rows - m) {
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

#undef TILE_OF
#undef TILE_CASE

#else

// Four signed bytes in each of `count` groups as pairs of integers of 16 bits, after a change of sign bits.
INLINE void widen(const int32_t *groups, long count, int32_t flip, int32_t *first, int32_t *second) {
    for (long i = 0; i < count; i++) {
        const int32_t g = groups[i] ^ flip;
        first[i] = (((int32_t)((uint32_t)g << 24) >> 24) & 0xffff) | (int32_t)((uint32_t)((int32_t)((uint32_t)g << 16) >> 24) << 16);
        second[i] = (((int32_t)((uint32_t)g << 8) >> 24) & 0xffff) | (int32_t)((uint32_t)(g >> 24) << 16);
    }
}

// Bytes widened to 16 bits, of which pairs are multiplied and summed exactly; the instruction on bytes saturates.
void product(Left left, Right right, long rows, long summed, float *out, long ld, const float *base) {
    if (base && base != out)
        for (long m = 0; m < rows; m++) memcpy(out + m * ld, base + m * ld, (size_t)right.columns * 4);
    const long pairs = summed / 2;
    int32_t *wide = aligned(rows * summed * 2), *panel = aligned(PANEL_COLUMNS * summed * 2);
    const int by_rows = left.step == 4;
    if (by_rows)
        for (long m = 0; m < rows; m++)
            for (long k = 0; k < summed; k++) ((int16_t *)wide)[m * summed + k] = (int16_t)(left.bytes[m * left.row + k] - 128);
    else
        for (long k = 0; k < pairs; k += 2)
            widen((const int32_t *)(left.bytes + k / 2 * left.step), rows, (int32_t)0x80808080, wide + k * rows, wide + (k + 1) * rows);
    const PairLeft a = {wide, left.scale, by_rows ? pairs : 1, by_rows ? 1 : rows};
    for (long n = 0; n < right.columns; n += PANEL_COLUMNS) {
        const long columns = smaller_of(PANEL_COLUMNS, right.columns - n);
        for (long k = 0; k < pairs; k += 2)
            widen((const int32_t *)(right.bytes + n * summed) + k / 2 * columns, columns, 0, panel + k * columns,
                  panel + (k + 1) * columns);
        pair_product_once(a, (PairRight){panel, right.scale + n, columns}, rows, pairs, 0, columns, out + n, ld, base ? 1.0f : 0.0f);
    }
    free(wide), free(panel);
}

#endif

// -- float32 product ---------------------------------------------------------------------------------------------------

INLINE void float_tile(int rows, int vectors, const float *a, long row, long step, const float *b, long ldb, long summed,
                       float *out, long ld, int add) {
    vec sums[TILE_ROWS][TILE_VECTORS * PARTS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors * PARTS; v++) sums[r][v] = add ? *(const vec *)(out + r * ld + v * PART) : (vec){0};
    for (long t = 0; t < summed; t++, a += step, b += ldb) {
        vec right[TILE_VECTORS * PARTS];
        for (int v = 0; v < vectors * PARTS; v++) right[v] = *(const vec *)(b + v * PART);
        for (int r = 0; r < rows; r++) {
            const vec left = a[r * row] - (vec){0};
            for (int v = 0; v < vectors * PARTS; v++) sums[r][v] = fma_sum(sums[r][v], left, right[v]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors * PARTS; v++) *(vec *)(out + r * ld + v * PART) = sums[r][v];
}

#define TILE_OF(R, V) float_tile(R, V, left, row, step, b + n, ldb, summed, place, ld, add)
#define FLOAT_CASE(R)                                                                                                            \
    case R:                                                                                                                      \
        BY_VECTORS(R)                                                                                                            \
        break;

void float_product(const float *a, long row, long step, const float *b, long ldb, long rows, long columns, long summed, float *out,
                   long ld, int add) {
    for (long n = 0; n < columns; n += TILE_VECTORS * LANES) {
        const int vectors = (int)smaller_of(TILE_VECTORS, (columns - n) / LANES);
        for (long m = 0; m < rows; m += TILE_ROWS) {
            const float *left = a + m * row;
            float *place = out + m * ld + n;
            switch (rows - m) {
                FLOAT_CASE(1)
                FLOAT_CASE(2)
                FLOAT_CASE(3)
                FLOAT_CASE(4)
                FLOAT_CASE(5)
                default:
                    FLOAT_CASE(6)
            }
        }
    }
}
