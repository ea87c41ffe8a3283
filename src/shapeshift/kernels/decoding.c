/* Steps of decoding: attention of few queries, the best continuations of hypotheses, and products of
   float32 with weights that are laid out once. */

#include "vectors.h"

#include <omp.h>

/* out (E) = softmax(scale * x k^T + bias + mask) v of one query and one head, E = V vectors. The j-th
   key is at row * steps[0] + j * steps[2] with row = rows[j * N], the value at row * steps[3] + j *
   steps[5]. */
INLINE void attend_one(const number *restrict x, const number *restrict k, const number *restrict v,
                       const long *steps, const int32_t *restrict rows, long n,
                       const number *restrict bias, const number *restrict mask, float scale,
                       number *restrict out, number *restrict kept, long N, long K, const long V) {
    const long blocks = vectors(K);
    vector query[V], sums[V], probs[blocks], most = all(-INFINITY), totals = all(0.0f);
    float *scores = (float *)probs;
    for (long e = 0; e < V; e++) {
        query[e] = load(x + e * LANES, LANES) * scale;
        sums[e] = all(0.0f);
    }
    for (long j = 0; j < K; j++) {
        const number *key = k + (rows ? rows[j * N] : n) * steps[0] + j * steps[2];
        vector products = query[0] * load(key, LANES);
        for (long e = 1; e < V; e++) products += query[e] * load(key + e * LANES, LANES);
        scores[j] =
            sum_of(products) + (bias ? wide(bias[j]) : 0.0f) + (mask ? wide(mask[j]) : 0.0f);
    }
    for (long j = K; j < blocks * LANES; j++) scores[j] = -INFINITY;
    for (long b = 0; b < blocks; b++) most = larger(most, probs[b]);
    float largest = finite_peak(most);
    for (long b = 0; b < blocks; b++) {
        probs[b] = exponentials(probs[b] - largest);
        totals += probs[b];
    }
    for (long j = 0; j < K; j++) {
        const number *value = v + (rows ? rows[j * N] : n) * steps[3] + j * steps[5];
        for (long e = 0; e < V; e++) sums[e] += scores[j] * load(value + e * LANES, LANES);
    }
    const float total = sum_of(totals), inverse = total == 0.0f ? 0.0f : 1.0f / total;
    for (long e = 0; e < V; e++) store(out + e * LANES, sums[e] * inverse, LANES);
    for (long b = 0; kept && b < blocks; b++)
        store(kept + b * LANES, probs[b] * inverse, K - b * LANES);
}

/* Attention of few queries: out (N, Q, H, E) for queries (N, H, Q, E), zeros for one whose scores are
   all -inf.

   steps   of the queries: 3, over n, h, i; of the keys and of the values: 3 each, over n, h, j; of
           the bias: 3, over n, h, i; the last dimension (E, or K of a bias) is contiguous
   rows    (K, N): where in the M rows of keys and values row n finds its j-th; or null, where n is
           the row
   bias    to add to the scores, or null
   mask    (N, K) to add to the scores, or null
   probs   (N, H, Q, K), written, or null */
long decode_step(const number *restrict q, const number *restrict k, const number *restrict v,
                 const long *steps, const int32_t *restrict rows, const number *restrict bias,
                 const number *restrict mask, float scale, number *restrict out,
                 number *restrict probs, long N, long H, long Q, long K, long E, long M,
                 long threads) {
    uint32_t last = 0; /* a negative one is a large one */
    for (long r = 0; rows && r < K * N; r++)
        last = (uint32_t)rows[r] > last ? (uint32_t)rows[r] : last;
    if (rows && last >= M) return NO_SUCH_INDEX;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long r = 0; r < N * H * Q; r++) {
        long n = r / (H * Q), h = r / Q % H, i = r % Q;
        const number *x = q + n * steps[0] + h * steps[1] + i * steps[2];
        const number *keys = k + h * steps[4], *values = v + h * steps[7];
        const int32_t *from = rows ? rows + n : 0;
        const number *masked = mask ? mask + n * K : 0;
        const number *biased = bias ? bias + n * steps[9] + h * steps[10] + i * steps[11] : 0;
        number *o = out + ((n * Q + i) * H + h) * E, *kept = probs ? probs + r * K : 0;
#define ATTEND(V) \
    attend_one(x, keys, values, steps + 3, from, n, biased, masked, scale, o, kept, N, K, V)
        E == 64 ? ATTEND(64 / LANES) : ATTEND(E / LANES);
    }
    return DONE;
}

/* The largest of each block of BLOCK of V numbers; return the largest of all. NaN does not count. */
enum { BLOCK = 64 };

static inline float largest_by_block(const number *restrict x, float *restrict highest, long V) {
    float largest = -INFINITY;
    for (long t = 0; t < V; t += BLOCK) {
        vector most = all(-INFINITY);
        for (long l = t; l < t + BLOCK; l += LANES)
            most = larger(most, load_or_least(x + l, V - l));
        highest[t / BLOCK] = largest_of(most);
        largest = highest[t / BLOCK] > largest ? highest[t / BLOCK] : largest;
    }
    return largest;
}

/* The `count` most probable continuations of each of A sentences, best first; among equals, the
   earlier beam comes first, then the lower token.

   logits   (A, B, V): of B beams
   sums     (A, B): log-probabilities of the beams, to which those of the tokens are added
   forced   (A): the only token that may follow, or -1
   pad, bos tokens that never follow, but count in the softmax
   out      (A, count): sums, -inf where there are no more; columns: beam * V + token */
long best_continuations(const number *restrict logits, const float *restrict sums,
                        const int64_t *restrict forced, long pad, long bos, float *restrict out,
                        int64_t *restrict columns, long A, long B, long V, long count,
                        long threads) {
    const long num_blocks = (V + BLOCK - 1) / BLOCK;
    for (long a = 0; a < A; a++)
        if (forced[a] < -1 || forced[a] >= V) return NO_SUCH_INDEX;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long a = 0; a < A; a++) {
        float *best = out + a * count, highest[num_blocks];
        int64_t *where = columns + a * count;
        for (long c = 0; c < count; c++) best[c] = -INFINITY, where[c] = 0;
        for (long b = 0; b < B; b++) {
            const float so_far = sums[a * B + b];
            if (so_far == -INFINITY) continue;
            const number *restrict x = logits + (a * B + b) * V;
            const float largest = largest_by_block(x, highest, V);
            vector totals = all(0.0f);
            for (long t = 0; t < V; t += LANES)
                totals += exponentials(load_or_least(x + t, V - t) - largest);
            const float log_total = logf(sum_of(totals));
            const long first = forced[a] < 0 ? 0 : forced[a], last = forced[a] < 0 ? V : first + 1;
            for (long block = first / BLOCK; block * BLOCK < last; block++) {
                if (!(so_far + (highest[block] - largest - log_total) > best[count - 1])) continue;
                const long from = block * BLOCK < first ? first : block * BLOCK;
                const long end = block * BLOCK + BLOCK < last ? block * BLOCK + BLOCK : last;
                for (long t = from; t < end; t++) {
                    const float sum = so_far + (wide(x[t]) - largest - log_total);
                    if (!(sum > best[count - 1]) || t == pad || t == bos) continue;
                    long place = count - 1;
                    for (; place && sum > best[place - 1]; place--) {
                        best[place] = best[place - 1];
                        where[place] = where[place - 1];
                    }
                    best[place] = sum;
                    where[place] = b * V + t;
                }
            }
        }
    }
    return DONE;
}

#ifndef BF16
/* out = x w^T + bias, with a weight in panels, for any number of rows.

   A panel holds WIDE vectors of outputs, input by input, so that it is read in one piece; ROWS rows
   times a panel are sums in registers. While one panel is used, the next is fetched, in equal
   parts: in decoding, weights come from beyond the caches of a core. */
enum { PANEL = WIDE * LANES, INPUTS = 16, LINE = 64 };

/* Columns of the panel that begins at output n: all, or as many vectors as N needs. */
static inline long width(long n, long N) {
    long vectors = (N - n + LANES - 1) / LANES;
    return (vectors < WIDE ? vectors : WIDE) * LANES;
}

/* weight (N, K) -> panels: K times N, rounded up to whole vectors with zeros. */
long panels(const float *restrict weight, float *restrict panels, long N, long K, long threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long n = 0; n < N; n += PANEL) {
        long columns = width(n, N);
        for (long k = 0; k < K; k++)
            for (long c = 0; c < columns; c++)
                panels[n * K + k * columns + c] = n + c < N ? weight[(n + c) * K + k] : 0.0f;
    }
    return DONE;
}

/* `tall` rows of x times a panel of `wide` vectors; `count` rows of `columns` sums are written. Each
   16 inputs, `lines` lines of memory from `next` on are fetched. */
INLINE void multiply(const float *const *x, const float *restrict panel, const float *restrict bias,
                     long relu, float *restrict out, long count, long columns, long N, long K,
                     const char *next, long lines, const int tall, const int wide) {
    vector sums[ROWS][WIDE];
    for (int r = 0; r < tall; r++)
        for (int c = 0; c < wide; c++) sums[r][c] = all(0.0f);
    for (long k = 0; k < K; k++) {
        if (k % INPUTS == 0)
            for (long l = 0; l < lines; l++, next += LINE) __builtin_prefetch(next, 0, 2);
        vector weights[WIDE];
#pragma GCC unroll 4
        for (int c = 0; c < wide; c++) {
            weights[c] = *(const vector *)(panel + (k * wide + c) * LANES);
            KEEP(weights[c]);
        }
#pragma GCC unroll 8
        for (int r = 0; r < tall; r++)
#pragma GCC unroll 4
            for (int c = 0; c < wide; c++) sums[r][c] += x[r][k] * weights[c];
    }
#pragma GCC unroll 8
    for (int r = 0; r < tall; r++)
#pragma GCC unroll 4
        for (int c = 0; c < wide; c++) {
            const long left = columns - c * LANES;
            vector y = sums[r][c] + load(bias + c * LANES, left);
            if (relu) y = larger(y, all(0.0f));
            if (r < count) store(out + r * N + c * LANES, y, left);
        }
}

/* x (M, K), panels of a weight (N, K), bias (N) -> out (M, N), with the negative ones 0 if `relu`.
   A row's result does not depend on the other rows. */
long linear(const float *restrict x, const float *restrict panels, const float *restrict bias,
            long relu, float *restrict out, long M, long N, long K, long threads) {
    enum { PART = 512 }; /* rows that stay in the cache of a core */
    const long parts = (M + PART - 1) / PART, num_panels = (N + PANEL - 1) / PANEL;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long r = 0; r < parts * num_panels; r++) {
        long n = r % num_panels * PANEL, first = r / num_panels * PART;
        long last = M - first < PART ? M : first + PART;
        const float *panel = panels + n * K;
        long wide = width(n, N) / LANES, columns = N - n < PANEL ? N - n : PANEL;
        long num_blocks = (last - first + ROWS - 1) / ROWS;
        long lines = (INPUTS * PANEL * 4 / LINE + num_blocks - 1) / num_blocks;
        const char *next = (const char *)(panel + PANEL * K);
        for (long m = first, tall; m < last; m += tall) {
            const float *rows[ROWS];
            const long rest = (last - m) % ROWS;
            tall = rest && rest <= 4 ? 4 : ROWS;
            long count = last - m < tall ? last - m : tall;
            for (long r = 0; r < tall; r++) rows[r] = x + (m + (r < count ? r : 0)) * K;
            float *o = out + m * N + n;
#define MULTIPLY(tall, wide) \
    multiply(rows, panel, bias + n, relu, o, count, columns, N, K, next, lines, tall, wide)
            if (wide == WIDE)
                tall == ROWS ? MULTIPLY(ROWS, WIDE) : MULTIPLY(4, WIDE);
            else if (WIDE > 2 && wide == 2)
                tall == ROWS ? MULTIPLY(ROWS, 2) : MULTIPLY(4, 2);
            else
                tall == ROWS ? MULTIPLY(ROWS, 1) : MULTIPLY(4, 1);
            next += lines * LINE * (K / INPUTS);
        }
    }
    return DONE;
}
#endif
