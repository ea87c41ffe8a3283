/* Products of blocks of 32 rows in the cache of a core. Those of bfloat16 use the tiles of AMX, or the dot
   products of pairs of AVX-512 where they are faster than floats (not on Intel's processors); elsewhere
   numbers become floats. */

#include "vectors.h"

enum { BLOCK = 32, EDGE = 32 };

#if defined(BF16) && defined(__AMX_BF16__) && !defined(NO_TILES)
#define TILES
#define PAIRS
#elif defined(BF16) && defined(HAS_MASKS) && defined(__AVX512BF16__) && !defined(NO_DOTS)
#define PAIRS
#endif

/* The right side of a product, (rows, columns), laid out for it; both are rounded up to EDGE with
   zeros. Columns lie in panels, of 16 for pairs and of EDGE elsewhere, one behind the other. */
#ifdef PAIRS
typedef uint16_t part;
enum { TILE = 16 * 32 };
#else
typedef float part;
enum { STEP = 4 };
#endif
struct operand {
    part *data;
    long rows, columns;
};
static inline long rounded(long count) { return (count + EDGE - 1) / EDGE * EDGE; }
static inline long size_of(long rows, long columns) { return rounded(rows) * rounded(columns); }
static inline struct operand operand_of(part *space, long rows, long columns) {
    return (struct operand){space, rounded(rows), rounded(columns)};
}
/* What begins at a row and a column of it, multiples of EDGE (columns of pairs: of 16), or else what holds
   them. */
static inline struct operand panel(struct operand b, long row, long column) {
#ifdef PAIRS
    b.data += column / 16 * (b.rows / 32 * TILE) + row / 32 * TILE;
#else
    b.data += column * b.rows + row * EDGE;
#endif
    return b;
}
static inline float part_at(struct operand b, long row, long column) {
#ifdef PAIRS
    return wide(panel(b, row, column).data[row % 32 / 2 * 32 + column % 16 * 2 + row % 2]);
#else
    return panel(b, row, column / EDGE * EDGE).data[column % EDGE];
#endif
}

/* Memory of a thread, with a margin on both sides; null if there is none, and then `lacks` is set.
   `free_all` frees all pieces. */
struct memory {
    void *last;
    int lacks;
};
static inline void *take(struct memory *memory, size_t bytes) {
    char *piece = memory->lacks ? 0 : aligned_alloc(64, (bytes + 255) / 64 * 64);
    memory->lacks = !piece;
    if (!piece) return 0;
    *(void **)piece = memory->last;
    memory->last = piece;
    return piece + 128;
}
static inline void *take_zeros(struct memory *memory, size_t bytes) {
    void *piece = take(memory, bytes);
    return piece ? memset(piece, 0, bytes) : 0;
}
/* Whether any thread of the team lacks memory, the same for all of them. */
static inline int any_lacks(int *lacking, int own) {
    if (own) {
#pragma omp atomic write
        *lacking = 1;
    }
    int any;
#pragma omp barrier
#pragma omp atomic read
    any = *lacking;
    return any;
}
static inline void free_all(struct memory *memory) {
    for (void *last = memory->last; last;) {
        void *next = *(void **)last;
        free(last);
        last = next;
    }
}

static inline void store_part(part *x, vector y) {
#ifdef PAIRS
    *(numbers *)x = narrowed(y);
#else
    *(vector *)x = y;
#endif
}

static inline vector load_part(const part *x) {
#ifdef PAIRS
    return (vector)(widened(*(const halves *)x) << 16);
#else
    return *(const vector *)x;
#endif
}

/* Write those of some lanes. */
static inline void store_parts(part *x, vector y, lanes which) {
#ifdef PAIRS
    _mm256_mask_storeu_epi16(x, which, (__m256i)narrowed(y));
#else
    store_floats(x, y, which);
#endif
}

static inline part part_of(float x) {
#ifdef PAIRS
    return narrow(x);
#else
    return x;
#endif
}

#ifdef HAS_MASKS
/* Transpose 16 rows of 16 numbers of 32 bits. */
static inline void transpose(__m512i *x) {
    __m512i y[16];
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        __m512i a = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
        __m512i b = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
        __m512i c = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xDD);
        __m512i d = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xDD);
        y[i] = _mm512_shuffle_i32x4(a, b, 0x88);
        y[i + 4] = _mm512_shuffle_i32x4(c, d, 0x88);
        y[i + 8] = _mm512_shuffle_i32x4(a, b, 0xDD);
        y[i + 12] = _mm512_shuffle_i32x4(c, d, 0xDD);
    }
    memcpy(x, y, sizeof y);
}
#endif

/* Bring `columns` numbers of a row that is read soon into the cache. */
static inline void prefetch(const number *x, long columns) {
    for (long c = 0; c < columns; c += 64 / sizeof *x) __builtin_prefetch(x + c, 0, 2);
}

/* x (rows, columns) -> a (BLOCK, columns rounded up), `step` numbers from row to row. The rows
   `ahead` of these are prefetched. */
static inline void copy_block(part *restrict a, const number *restrict x, long step, long ahead,
                              long rows, long columns) {
    const long wide = rounded(columns);
    for (long r = 0; r < BLOCK; r++) {
        if (r < rows) prefetch(x + r * step + ahead, columns);
        for (long c = 0; c < wide; c += LANES)
            store_part(a + r * wide + c,
                       r < rows ? load(x + r * step + c, columns - c) : all(0.0f));
    }
}

/* c (M, N) = the sum of products a b, or with `add` it is added to c. Rows of a (M, K) are `a_step` numbers
   apart; a and c have room for K and N rounded up to EDGE, and for M rounded up to STEP (tiles: to 16). */
struct factors {
    const part *a;
    long a_step;
    struct operand b;
    long K;
};
static inline void product_of(float *c, long c_step, const struct factors *all, int count, long M,
                              long N, int add);
/* Column n alone, which would take as long as a whole vector of columns; the rest of its vector is zero.
   K is a multiple of LANES. */
static inline void multiply_column(float *restrict c, long c_step, const part *restrict a,
                                   long a_step, struct operand b, long M, long n, long K, int add) {
    float column[K] __attribute__((aligned(64)));
    for (long k = 0; k < K; k++) column[k] = part_at(b, k, n);
    for (long m = 0; m < M; m++) {
        vector sums = all(0.0f), *to = (vector *)(c + m * c_step + n);
        for (long k = 0; k < K; k += LANES)
            sums += load_part(a + m * a_step + k) * *(const vector *)(column + k);
        const vector sum = {sum_of(sums)}, earlier = add ? *to : all(0.0f);
        *to = earlier + sum;
    }
}
static inline void product(float *c, long c_step, const part *a, long a_step, struct operand b,
                           long M, long N, long K, int add) {
#ifndef TILES
    if (N % LANES == 1 && K % LANES == 0) multiply_column(c, c_step, a, a_step, b, M, --N, K, add);
#endif
    product_of(c, c_step, &(struct factors){a, a_step, b, K}, 1, M, N, add);
}

#ifdef PAIRS
#ifdef TILES
static const struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} shape = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

/* Memory that the compiler sees written and read by tiles. */
#define FENCE() __asm__ volatile("" ::: "memory")

static inline void product_of(float *c, long c_step, const struct factors *all, int count, long M,
                              long N, int add) {
    FENCE();
    for (long n = 0; n < N; n += 32)
        for (long m = 0; m < M; m += 32) {
            const int tall = M - m > 16, broad = N - n > 16;
            float *to = c + m * c_step + n;
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
            if (add) {
                _tile_loadd(0, to, 4 * c_step);
                if (broad) _tile_loadd(1, to + 16, 4 * c_step);
                if (tall) _tile_loadd(2, to + 16 * c_step, 4 * c_step);
                if (tall && broad) _tile_loadd(3, to + 16 * c_step + 16, 4 * c_step);
            }
            for (const struct factors *f = all; f < all + count; f++) {
                const long column = f->b.rows / 32 * TILE;
                const part *rows = f->a + m * f->a_step, *tile = f->b.data + n / 16 * column;
                for (long k = 0; k < f->K; k += 32, rows += 32, tile += TILE) {
                    _tile_loadd(4, rows, 2 * f->a_step);
                    _tile_loadd(6, tile, 64);
                    _tile_dpbf16ps(0, 4, 6);
                    if (broad) {
                        _tile_loadd(7, tile + column, 64);
                        _tile_dpbf16ps(1, 4, 7);
                    }
                    if (tall) {
                        _tile_loadd(5, rows + 16 * f->a_step, 2 * f->a_step);
                        _tile_dpbf16ps(2, 5, 6);
                        if (broad) _tile_dpbf16ps(3, 5, 7);
                    }
                }
            }
            _tile_stored(0, to, 4 * c_step);
            if (broad) _tile_stored(1, to + 16, 4 * c_step);
            if (tall) _tile_stored(2, to + 16 * c_step, 4 * c_step);
            if (tall && broad) _tile_stored(3, to + 16 * c_step + 16, 4 * c_step);
        }
    FENCE();
}
#else
/* `tall` rows, TALL or STEP, and `wide` vectors of a product, whose sums are in registers. */
enum { TALL = 8, STEP = 4 };
INLINE void multiply_some(float *restrict c, long c_step, const struct factors *all_of, int count,
                          long m, long n, int add, const int tall, const int wide) {
    vector sums[TALL][2];
    for (int r = 0; r < tall; r++)
        for (int w = 0; w < wide; w++)
            sums[r][w] = add ? *(vector *)(c + r * c_step + w * LANES) : all(0.0f);
    for (const struct factors *f = all_of; f < all_of + count; f++) {
        const long column = f->b.rows / 32 * TILE;
        const part *rows = f->a + m * f->a_step, *tile = f->b.data + n / 16 * column;
        for (long k = 0; k < f->K; k += 2, rows += 2, tile += 32) {
            __m512bh pairs[2];
            for (int w = 0; w < wide; w++)
                pairs[w] = (__m512bh)_mm512_load_si512(tile + w * column);
#pragma GCC unroll 8
            for (int r = 0; r < tall; r++) {
                int32_t own;
                memcpy(&own, rows + r * f->a_step, 4);
                const __m512bh a = (__m512bh)_mm512_set1_epi32(own);
#pragma GCC unroll 2
                for (int w = 0; w < wide; w++)
                    sums[r][w] = (vector)_mm512_dpbf16_ps((__m512)sums[r][w], a, pairs[w]);
            }
        }
    }
    for (int r = 0; r < tall; r++)
        for (int w = 0; w < wide; w++) *(vector *)(c + r * c_step + w * LANES) = sums[r][w];
}
static inline void product_of(float *c, long c_step, const struct factors *all, int count, long M,
                              long N, int add) {
    for (long n = 0; n < N; n += 32)
        for (long m = 0, tall; m < M; m += tall) {
            float *to = c + m * c_step + n;
            tall = M - m <= STEP ? STEP : TALL;
#define MULTIPLY(tall, wide) multiply_some(to, c_step, all, count, m, n, add, tall, wide)
            if (N - n > 16)
                tall == TALL ? MULTIPLY(TALL, 2) : MULTIPLY(STEP, 2);
            else
                tall == TALL ? MULTIPLY(TALL, 1) : MULTIPLY(STEP, 1);
        }
}
#endif

/* Rows 2 r and 2 r + 1 of x side by side, column by column: a tile has 16 such pairs of 16 columns. */
static inline __m512i pair(const number *x, long step, long row, long rows, long left) {
    words low = {0}, high = {0};
    if (row < rows) low = widened(load_halves(x + row * step, left));
    if (row + 1 < rows) high = widened(load_halves(x + (row + 1) * step, left));
    return (__m512i)(low | high << 16);
}
/* Lay x (rows, columns), `step` numbers from row to row, out in the first rows of b. */
static inline struct operand lay_out(struct operand b, const number *restrict x, long step,
                                     long ahead, long rows, long columns) {
    for (long r = 0; ahead && r < rows; r++) prefetch(x + r * step + ahead, columns);
    for (long c = 0; c < b.columns; c += 16)
        for (long r = 0; r < rounded(rows); r += 2)
            _mm512_store_si512(panel(b, 0, c).data + r * 16,
                               pair(x + c, step, r, rows, columns - c));
    return b;
}
/* The transpose of x (rows, columns). */
static inline struct operand lay_out_transposed(part *restrict space, const number *restrict x,
                                                long step, long ahead, long rows, long columns) {
    struct operand b = operand_of(space, columns, rows);
    for (long r = 0; r < rows; r++) prefetch(x + r * step + ahead, columns);
    for (long r = 0; r < b.columns; r += 16)
        for (long c = 0; c < b.rows; c += 32, space += TILE) {
            __m512i tile[16];
            for (int i = 0; i < 16; i++) {
                const long left = r + i < rows ? columns - c : 0;
                const __mmask32 some = left >= 32 ? 0xFFFFFFFF : (1u << left) - 1;
                tile[i] = _mm512_maskz_loadu_epi16(some, x + (r + i) * step + c);
            }
            transpose(tile);
            memcpy(space, tile, sizeof tile);
        }
    return b;
}
/* Rows of a sentence's queries, (count, width), whose transpose products read: a block of rows, and the
   transpose of all of them. */
struct transposed {
    part *block, *all;
    long width, step;
};
static inline struct transposed new_transposed(struct memory *memory, long width, long count) {
    return (struct transposed){take(memory, BLOCK * width * sizeof(part)),
                               take(memory, rounded(count) * width * sizeof(part)), width,
                               rounded(count)};
}
static inline void shorten(struct transposed *a, long count) { a->step = rounded(count); }
static inline part *row_of(struct transposed a, long begin, long i) {
    (void)begin; /* the block's */
    return a.block + i * a.width;
}
/* Turn a block, its first `used` columns, when its rows are there. */
static inline void transpose_rows(struct transposed a, long begin, long rows, long used) {
    for (long m = 0; m < used; m += 16) {
        __m512i tile[16];
        for (long r = 0; r < 16; r++) tile[r] = pair(a.block + m, a.width, 2 * r, rows, 16);
        transpose(tile);
        for (long r = 0; r < 16; r++) _mm512_store_si512(a.all + (m + r) * a.step + begin, tile[r]);
    }
}
/* c (M, N) = a^T b, or is added to it, for columns of a from `column` on and its rows, and those of b,
   from `row`, a multiple of BLOCK, to `count`. */
static inline void product_transposed(float *c, long c_step, struct transposed a, long column,
                                      long row, struct operand b, long M, long N, long count,
                                      int add) {
    b.data += row / 32 * TILE;
    product(c, c_step, a.all + column * a.step + row, a.step, b, M, N, count - row, add);
}
#else
/* `tall` rows, TALL or STEP, and `wide` vectors of a product, whose sums are in registers; panels of b
   are `apart`. */
enum { TALL = 6 };
INLINE void multiply_some(float *restrict c, long c_step, const float *restrict a, long a_step,
                          long k_step, const float *restrict b, long apart, long K, int add,
                          const int tall, const int wide) {
    vector sums[TALL][4];
    for (int r = 0; r < tall; r++)
        for (int w = 0; w < wide; w++)
            sums[r][w] = add ? *(vector *)(c + r * c_step + w * LANES) : all(0.0f);
    for (long k = 0; k < K; k++) {
        vector row[4];
#pragma GCC unroll 4
        for (int w = 0; w < wide; w++) {
            const long column = w * LANES;
            row[w] = *(const vector *)(b + k * EDGE + column / EDGE * apart + column % EDGE);
            KEEP(row[w]);
        }
#pragma GCC unroll 6
        for (int r = 0; r < tall; r++)
#pragma GCC unroll 4
            for (int w = 0; w < wide; w++) sums[r][w] += a[r * a_step + k * k_step] * row[w];
    }
    for (int r = 0; r < tall; r++)
        for (int w = 0; w < wide; w++) *(vector *)(c + r * c_step + w * LANES) = sums[r][w];
}
static void multiply_all(float *restrict c, long c_step, const float *restrict a, long a_step,
                         long k_step, struct operand b, long M, long N, long K, int add) {
    enum { MOST = LANES == 16 ? 4 : 2 };
    const long apart = b.rows * EDGE;
    for (long n = 0; n < N; n += MOST * LANES) {
        const long wide = (N - n + LANES - 1) / LANES;
        const float *from = b.data + n / EDGE * apart + n % EDGE;
        for (long m = 0, tall; m < M; m += tall) {
            float *to = c + m * c_step + n;
            const float *rows = a + m * a_step;
            tall = M - m <= STEP || M - m == 7 || M - m == 8 ? STEP : TALL;
#define MULTIPLY(tall, wide) \
    multiply_some(to, c_step, rows, a_step, k_step, from, apart, K, add, tall, wide)
#define MULTIPLY_WIDE(wide) (tall == TALL ? MULTIPLY(TALL, wide) : MULTIPLY(STEP, wide))
            if (wide >= MOST)
                MULTIPLY_WIDE(MOST);
            else if (MOST > 2 && wide == 3)
                MULTIPLY_WIDE(3);
            else if (MOST > 2 && wide == 2)
                MULTIPLY_WIDE(2);
            else
                MULTIPLY_WIDE(1);
        }
    }
}
static inline void product_of(float *c, long c_step, const struct factors *all, int count, long M,
                              long N, int add) {
    for (const struct factors *f = all; f < all + count; f++)
        multiply_all(c, c_step, f->a, f->a_step, 1, f->b, M, N, f->K, add || f > all);
}
struct transposed {
    part *all;
    long width;
};
static inline struct transposed new_transposed(struct memory *memory, long width, long count) {
    return (struct transposed){take(memory, rounded(count) * width * sizeof(part)), width};
}
static inline void shorten(struct transposed *a, long count) { (void)a, (void)count; }
static inline part *row_of(struct transposed a, long begin, long i) {
    return a.all + (begin + i) * a.width;
}
static inline void transpose_rows(struct transposed a, long begin, long rows, long used) {
    (void)a, (void)begin, (void)rows, (void)used; /* products read it as it is */
}
static inline void product_transposed(float *c, long c_step, struct transposed a, long column,
                                      long row, struct operand b, long M, long N, long count,
                                      int add) {
    b.data += row * EDGE;
    multiply_all(c, c_step, a.all + column + row * a.width, 1, a.width, b, M, N, count - row, add);
}
static inline struct operand lay_out(struct operand b, const number *restrict x, long step,
                                     long ahead, long rows, long columns) {
    for (long r = 0; r < rounded(rows); r++) {
        if (r < rows) prefetch(x + r * step + ahead, columns);
        for (long c = 0; c < b.columns; c += LANES)
            store_part(b.data + c / EDGE * b.rows * EDGE + r * EDGE + c % EDGE,
                       r < rows ? load(x + r * step + c, columns - c) : all(0.0f));
    }
    return b;
}
static inline struct operand lay_out_transposed(part *restrict space, const number *restrict x,
                                                long step, long ahead, long rows, long columns) {
    struct operand b = operand_of(space, columns, rows);
    for (long r = 0; r < rows; r++) prefetch(x + r * step + ahead, columns);
    for (long c = 0; c < b.columns; c += LANES)
        for (long r = 0; r < b.rows; r += LANES) {
            part *to = space + c / EDGE * b.rows * EDGE + r * EDGE + c % EDGE;
            vector transposed[LANES];
            for (int l = 0; l < LANES; l++)
                transposed[l] =
                    c + l < rows ? load(x + (c + l) * step + r, columns - r) : all(0.0f);
#ifdef HAS_MASKS
            transpose((__m512i *)transposed);
            for (int l = 0; l < LANES; l++) store_part(to + l * EDGE, transposed[l]);
#else
            for (int l = 0; l < LANES; l++)
                for (int k = 0; k < LANES; k++) to[k * EDGE + l] = transposed[l][k];
#endif
        }
    return b;
}
#endif

/* Set the tiles of a thread, and afterwards those that oneDNN had set. */
#ifdef TILES
typedef struct {
    uint8_t bytes[64];
} setting;
static inline setting begin_tiles(void) {
    setting before; /* gcc's functions for this name 8 of its 64 bytes as what they write */
    __asm__ volatile("sttilecfg %0" : "=m"(before));
    __asm__ volatile("ldtilecfg %0" ::"m"(shape));
    return before;
}
static inline void end_tiles(setting before) { __asm__ volatile("ldtilecfg %0" ::"m"(before)); }
#else
typedef int setting;
static inline setting begin_tiles(void) { return 0; }
static inline void end_tiles(setting before) { (void)before; }
#endif
