#include "products.h"

// -- operands ----------------------------------------------------------------------------------------------------------

INLINE v16 rounded(const float *x, v16 inverse) { return nearest(load(x) * inverse); }

INLINE void store_bytes(uint8_t *out, v16 x) {
    i16 wide = __builtin_convertvector(x, i16);
#if defined(__AVX512F__)
    _mm_storeu_si128((__m128i *)out, _mm512_cvtepi32_epi8((__m512i)wide));
#else
    for (int i = 0; i < LANES; i++) out[i] = (uint8_t)wide[i];
#endif
}

INLINE void quantise_row(const float *x, long width, uint8_t *bytes, float peak, float *scale) {
    float inverse;
    *scale = power_of_two(peak, 127.0f, &inverse);
    const v16 by = splat(inverse);
    for (long k = 0; k < width; k += LANES) store_bytes(bytes + k, rounded(x + k, by) + 128.0f);
}

// The largest |x| of a row, and the larger of that in each column and of `peaks`.
INLINE float both_peaks(const float *x, long width, float *peaks) {
    v16 peak = {0};
    for (long k = 0; k < width; k += LANES) {
        const v16 value = absolute(load(x + k));
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
        for (long k = 0; k < width; k += LANES) store(peaks + k, larger(absolute(load(x + k)), load(peaks + k)));
}

// Four rows of 16 bytes, given as integers of 32 bits, interleaved: [16][4].
INLINE void store_four(uint8_t *out, i16 a, i16 b, i16 c, i16 d) {
    *(i16 *)out = (a & 255) | (b & 255) << 8 | (c & 255) << 16 | d << 24;
}

void quantise_columns(const float *x, long rows, long width, const float *peaks, uint8_t *bytes, float *scale, int32_t *offset) {
    const long padded = (rows + 3) / 4 * 4;
    const i16 shift = (i16){0} + (offset ? 0 : 128);
    float *inverse = floats(width);
    for (long n = 0; n < width; n += LANES) {
        v16 by;
        store(scale + n, powers_of_two(load(peaks + n), 127.0f, &by));
        store(inverse + n, by);
    }
    if (offset) memset(offset, 0, (size_t)width * 4);
    for (long t = 0; t < rows; t += 4)
        for (long n = 0; n < width; n += LANES) {
            const long panel = offset ? n / PANEL_COLUMNS * PANEL_COLUMNS : 0;
            const long ld = smaller_of(offset ? PANEL_COLUMNS : width, width - panel);
            const v16 by = load(inverse + n);
            i16 four[4];
            for (long i = 0; i < 4; i++) {
                four[i] = (i16){0};
                if (t + i < rows) four[i] = __builtin_convertvector(rounded(x + (t + i) * width + n, by), i16);
            }
            if (offset) *(i16 *)(offset + n) += (four[0] + four[1] + four[2] + four[3]) * 128;
            store_four(bytes + panel * padded + (n - panel) * 4 + t * ld, four[0] + shift, four[1] + shift, four[2] + shift,
                       four[3] + shift);
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
            const v16 by = splat(inverse);
            i16 sum = {0};
            for (long k = 0; k < width; k += LANES) {
                const v16 values = rounded(w + k, by);
                sum += __builtin_convertvector(values, i16);
                store_bytes(some + i * width + k, values);
            }
            int32_t total = 0;
            for (int lane = 0; lane < LANES; lane++) total += sum[lane];
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

INLINE i16 four_products(i16 sum, int32_t a, const int8_t *b) {
#if defined(__AVX512VNNI__)
    return (i16)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(a), _mm512_loadu_si512(b));
#elif defined(__AVX2__)
    // Bytes widened to 16 bits: products of pairs are summed exactly, where the instruction on bytes saturates.
    const __m256i pairs = _mm256_cvtepu8_epi16(_mm_set1_epi32(a));
    i16 out;
    for (int i = 0; i < LANES; i += 8) {
        __m256i low = _mm256_madd_epi16(pairs, _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(b + 4 * i))));
        __m256i high = _mm256_madd_epi16(pairs, _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(b + 4 * i + 16))));
        __m256i both = _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), 0xd8);
        _mm256_storeu_si256((__m256i *)((int32_t *)&out + i),
                            _mm256_add_epi32(both, _mm256_loadu_si256((const __m256i *)((const int32_t *)&sum + i))));
    }
    return out;
#else
    const uint8_t *u = (const uint8_t *)&a;
    for (int i = 0; i < LANES; i++) sum[i] += u[0] * b[4 * i] + u[1] * b[4 * i + 1] + u[2] * b[4 * i + 2] + u[3] * b[4 * i + 3];
    return sum;
#endif
}

#define TILE 6

// A tile of `rows` (at most TILE) by `vectors` * 16 columns (at most 64); constants once it is inlined.
INLINE void tile(int rows, int vectors, Left left, Right right, long m, long n, long summed, float *out, long ld, int add) {
    i16 sums[TILE][4];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sums[r][v] = -*(const i16 *)(right.offset + n + v * LANES);
    const uint8_t *a = left.bytes + m * left.row;
    const int8_t *b = right.bytes + n * summed;
    for (long k = 0; k < summed; k += 4, a += left.step, b += vectors * LANES * 4)
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, a + r * left.row, 4);
            for (int v = 0; v < vectors; v++) sums[r][v] = four_products(sums[r][v], four, b + v * LANES * 4);
        }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            float *place = out + (m + r) * ld + n + v * LANES;
            v16 value = __builtin_convertvector(sums[r][v], v16) * (left.scale[m + r] * load(right.scale + n + v * LANES));
            if (add) value = load(place) + value;
            store(place, value);
        }
}

#define TILE_CASE(R)                                                                                                             \
    case R:                                                                                                                      \
        if (vectors == 4) tile(R, 4, left, right, m, n, summed, out, ld, add);                                                   \
        else if (vectors == 3) tile(R, 3, left, right, m, n, summed, out, ld, add);                                              \
        else if (vectors == 2) tile(R, 2, left, right, m, n, summed, out, ld, add);                                              \
        else tile(R, 1, left, right, m, n, summed, out, ld, add);                                                                \
        break;

void product(Left left, Right right, long rows, long summed, float *out, long ld, int add) {
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

// -- float32 product ---------------------------------------------------------------------------------------------------

#define FLOAT_TILE 6

INLINE v16 fused(v16 a, v16 b, v16 sum) {
#if defined(__AVX512F__)
    // By hand: GCC 12 copies the sums of the intrinsic function at each round.
    asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
#else
    return fma16(a, b, sum);
#endif
}

INLINE void float_tile(int rows, int vectors, const float *a, long row, long step, const float *b, long ldb, long summed,
                       float *out, long ld, int add) {
    v16 sums[FLOAT_TILE][4];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sums[r][v] = add ? load(out + r * ld + v * LANES) : (v16){0};
    for (long t = 0; t < summed; t++, a += step, b += ldb) {
        v16 right[4];
        for (int v = 0; v < vectors; v++) right[v] = load(b + v * LANES);
        for (int r = 0; r < rows; r++) {
            v16 left = splat(a[r * row]);
            for (int v = 0; v < vectors; v++) sums[r][v] = fused(left, right[v], sums[r][v]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) store(out + r * ld + v * LANES, sums[r][v]);
}

#define FLOAT_CASE(R)                                                                                                            \
    case R:                                                                                                                      \
        if (vectors == 4) float_tile(R, 4, left, row, step, b + n, ldb, summed, place, ld, add);                                 \
        else if (vectors == 3) float_tile(R, 3, left, row, step, b + n, ldb, summed, place, ld, add);                            \
        else if (vectors == 2) float_tile(R, 2, left, row, step, b + n, ldb, summed, place, ld, add);                            \
        else float_tile(R, 1, left, row, step, b + n, ldb, summed, place, ld, add);                                              \
        break;

void float_product(const float *a, long row, long step, const float *b, long ldb, long rows, long columns, long summed, float *out,
                   long ld, int add) {
    for (long n = 0; n < columns; n += 4 * LANES) {
        const int vectors = columns - n >= 4 * LANES ? 4 : (int)((columns - n) / LANES);
        for (long m = 0; m < rows; m += FLOAT_TILE) {
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
