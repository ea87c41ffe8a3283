/* The gradient of the weight of a linear layer. */

#include "products.h"

#include <omp.h>

enum { PACKED = 1 << 18 }; /* numbers of both sides that are laid out at a time */

/* Rows i to i + rows of the side that is transposed, x (rows, N), which are added to the sums of its
   columns. */
static inline void lay_out_rows(struct transposed a, const number *x, long i, long rows, long N,
                                float *sums) {
#ifdef PAIRS
    a.block = (part *)x;
    transpose_rows(a, i, rows, N);
#else
    copy_block(row_of(a, i, 0), x, N, 0, rows, N);
#endif
    for (long n = 0; n < N; n += LANES) {
        vector sum = *(vector *)(sums + n);
        for (long r = 0; r < rows; r++) sum += load(x + r * N + n, LANES);
        *(vector *)(sums + n) = sum;
    }
}

/* out (N, K) = g^T x for g (M, N) and x (M, K); and the sums of the columns of g, added to `sums`
   (threads, N), a part in each. N and K are multiples of EDGE. */
long weight_gradient(const number *g, const number *x, float *out, float *sums, long M, long N,
                     long K, long threads) {
    long most = PACKED / (N + K) / BLOCK * BLOCK;
    most = most < 2 * BLOCK ? 2 * BLOCK : most > 8 * BLOCK ? 8 * BLOCK : most;
    struct memory memory = {0};
    part *g_space = take(&memory, most * N * sizeof(part));
    part *x_space = take(&memory, most * K * sizeof(part));
    if (memory.lacks) {
        free_all(&memory);
        return NO_MEMORY;
    }
#pragma omp parallel num_threads(threads)
    {
        const setting earlier = begin_tiles();
        for (long m = 0; m < M; m += most) {
            const long count = M - m < most ? M - m : most;
            const struct transposed a = transposed_of(0, g_space, N, most);
            const struct operand b = {x_space, rounded(count), K};
#pragma omp for schedule(static)
            for (long i = 0; i < count; i += BLOCK) {
                const long rows = count - i < BLOCK ? count - i : BLOCK;
                lay_out_rows(a, g + (m + i) * N, i, rows, N, sums + omp_get_thread_num() * N);
                lay_out(panel(b, i, 0), x + (m + i) * K, K, 0, rows, K);
            }
#pragma omp for schedule(static)
            for (long n = 0; n < N; n += BLOCK)
                for (long k = 0; k < K; k += EDGE)
                    product_transposed(out + n * K + k, K, a, n, 0, panel(b, 0, k), BLOCK, EDGE,
                                       count, m > 0);
        }
        end_tiles(earlier);
    }
    free_all(&memory);
    return DONE;
}
