// Muon's Newton-Schulz iteration on a batch of matrices. Its products take operands of up to 11 bits on a power-of-two scale for
// each row (8 bits are too few: rounding errors grow through the five steps to a quarter of the result), two in 32 bits, and sum
// exactly.

#include "products.h"

typedef struct {
    long count, rows, columns, iterations;
    float a, b, c, smallest;
} Iteration;


// The largest operand whose products sum to less than 2^31.
INLINE float largest_operand(long summed) {
    float top = 2047.0f;
    while (top * top * (float)summed >= 2147483648.0f) top = (top - 1.0f) / 2.0f;
    return top;
}

// Rows of x (rows, width) as pairs (rows, width / 2) and the scale of each row.
static void pair_rows(const float *x, long rows, long width, float top, int32_t *pairs, float *scale) {
    for (long m = 0; m < rows; m++, x += width, pairs += width / 2) {
        float inverse;
        scale[m] = power_of_two(row_peak(x, width), top, &inverse);
        int16_t *row = (int16_t *)pairs;
        for (long k = 0; k < width; k += LANES) {
            i16 values = __builtin_convertvector(nearest(load(x + k) * splat(inverse)), i16);
            for (int i = 0; i < LANES; i++) row[k + i] = (int16_t)values[i];
        }
    }
}

// (rows, columns) to (columns, rows), in squares that fit into registers.
static void transposed(const int32_t *x, long rows, long columns, int32_t *out) {
    for (long m = 0; m < rows; m += 8)
        for (long k = 0; k < columns; k += 8)
            for (long i = 0; i < 8; i++)
                for (long j = 0; j < 8; j++) out[(k + i) * rows + m + j] = x[(m + j) * columns + k + i];
}

// Columns of x (rows, width) summed over rows: pairs (rows / 2, width) and the scale of each column.
static void pair_columns(const float *x, long rows, long width, float top, int32_t *pairs, float *scale) {
    for (long n = 0; n < width; n += LANES) {
        v16 peak = {0}, inverses;
        for (long t = 0; t < rows; t++) peak = larger(absolute(load(x + t * width + n)), peak);
        for (int i = 0; i < LANES; i++) {
            float inverse;
            scale[n + i] = power_of_two(peak[i], top, &inverse);
            inverses[i] = inverse;
        }
        for (long t = 0; t < rows; t += 2) {
            i16 first = __builtin_convertvector(nearest(load(x + t * width + n) * inverses), i16);
            i16 second = __builtin_convertvector(nearest(load(x + (t + 1) * width + n) * inverses), i16);
            *(i16 *)(pairs + t / 2 * width + n) = (first & 0xffff) | second << 16;
        }
    }
}

INLINE i16 pair_products(i16 sum, int32_t a, i16 b) {
#if defined(__AVX512VNNI__)
    return (i16)_mm512_dpwssd_epi32((__m512i)sum, _mm512_set1_epi32(a), (__m512i)b);
#elif defined(__AVX512BW__)
    return sum + (i16)_mm512_madd_epi16(_mm512_set1_epi32(a), (__m512i)b);
#elif defined(__AVX2__)
    i16 out;
    for (int i = 0; i < LANES; i += 8) {
        __m256i part = _mm256_loadu_si256((const __m256i *)((const int32_t *)&b + i));
        _mm256_storeu_si256((__m256i *)((int32_t *)&out + i), _mm256_madd_epi16(_mm256_set1_epi32(a), part));
    }
    return sum + out;
#else
    return sum + (int16_t)a * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
}

INLINE void pair_tile(int rows, int vectors, const int32_t *a, long row, const int32_t *b, long ldb, long pairs, const float *left,
                      const float *right, float *out, float *mirror, float factor) {
    i16 sums[4][4];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sums[r][v] = (i16){0};
    for (long k = 0; k < pairs; k++, a++, b += ldb) {
        i16 values[4];
        for (int v = 0; v < vectors; v++) values[v] = *(const i16 *)(b + v * LANES);
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++) sums[r][v] = pair_products(sums[r][v], a[r * row], values[v]);
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            float *place = out + r * ldb + v * LANES;
            v16 value = __builtin_convertvector(sums[r][v], v16) * (left[r] * load(right + v * LANES));
            store(place, load(place) * factor + value);
            if (mirror)
                for (int i = 0; i < LANES; i++) mirror[(v * LANES + i) * ldb + r] = place[i];
        }
}

// out (rows, columns) = factor * out + a b, of operands in pairs. `symmetric`: so is the result, of which only the squares of 64 on
// and above the diagonal are computed.
static void pair_product(const int32_t *a, const float *left, const int32_t *b, const float *right, long rows, long columns,
                         long summed, float *out, float factor, int symmetric) {
    const long pairs = summed / 2;
    for (long n = 0; n < columns; n += 4 * LANES) {
        const long end = symmetric && n + 4 * LANES < rows ? n + 4 * LANES : rows;
        for (long m = 0; m < end; m += 4) {
            float *place = out + m * columns + n, *mirror = symmetric && m / 64 < n / 64 ? out + n * columns + m : 0;
            const int32_t *x = a + m * pairs, *y = b + n;
            switch (columns - n >= 4 * LANES ? 4 : (columns - n) / LANES) {
                case 1: pair_tile(4, 1, x, pairs, y, columns, pairs, left + m, right + n, place, mirror, factor); break;
                case 2: pair_tile(4, 2, x, pairs, y, columns, pairs, left + m, right + n, place, mirror, factor); break;
                case 3: pair_tile(4, 3, x, pairs, y, columns, pairs, left + m, right + n, place, mirror, factor); break;
                default: pair_tile(4, 4, x, pairs, y, columns, pairs, left + m, right + n, place, mirror, factor);
            }
        }
    }
}

typedef struct {
    float *gram, *update, *left_scale, *right_scale;
    int32_t *left, *right;
} Scratch;

// x = a x + (b G + c G G) x with G = x x^T.
static void one_step(const Iteration *s, float *x, Scratch at) {
    const long m = s->rows, n = s->columns;
    const float wide = largest_operand(n), narrow = largest_operand(m);
    pair_rows(x, m, n, wide, at.left, at.left_scale);
    transposed(at.left, m, n / 2, at.right);
    memset(at.gram, 0, (size_t)(m * m) * 4);
    pair_product(at.left, at.left_scale, at.right, at.left_scale, m, m, n, at.gram, 0.0f, 1);
    pair_rows(at.gram, m, m, narrow, at.left, at.left_scale);
    transposed(at.left, m, m / 2, at.right);
    for (long k = 0; k < m * m; k += LANES) store(at.update + k, load(at.gram + k) * (s->b / s->c));
    pair_product(at.left, at.left_scale, at.right, at.left_scale, m, m, m, at.update, 1.0f, 1);
    for (long k = 0; k < m * m; k += LANES) store(at.update + k, load(at.update + k) * s->c);
    pair_rows(at.update, m, m, narrow, at.left, at.left_scale);
    pair_columns(x, m, n, narrow, at.right, at.right_scale);
    pair_product(at.left, at.left_scale, at.right, at.right_scale, m, n, m, x, s->a, 0);
}

// x (count, rows, columns) in place, rows <= columns and both multiples of 16: each matrix over its norm, then the iterations.
void orthogonalise(const Iteration *iteration, float *x) {
    const Iteration s = *iteration;
    const long square = s.rows * s.rows, whole = s.rows * s.columns, longest = larger_of(s.rows, s.columns);
#pragma omp parallel
    {
        Scratch at = {aligned(square * 4), aligned(square * 4), aligned(longest * 4), aligned(longest * 4), aligned(whole * 2), aligned(whole * 2)};
#pragma omp for schedule(dynamic)
        for (long i = 0; i < s.count; i++) {
            float *matrix = x + i * whole;
            v16 sum = {0};
            for (long k = 0; k < whole; k += LANES) sum = sum + load(matrix + k) * load(matrix + k);
            const float norm = sqrtf(lane_sum(sum)), divisor = norm > s.smallest ? norm : s.smallest;
            for (long k = 0; k < whole; k += LANES) store(matrix + k, load(matrix + k) / divisor);
            for (long step = 0; step < s.iterations; step++) one_step(&s, matrix, at);
        }
        free(at.gram), free(at.update), free(at.left_scale), free(at.right_scale), free(at.left), free(at.right);
    }
}
