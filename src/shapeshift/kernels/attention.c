/* Attention of whole sentences, forward and backward: scores, softmax, dropout and outputs of 32
   queries of one head at a time, in the cache of a core; with vectors by distance (Shaw et al. 2018)
   that are added to keys and values. */

#include "products.h"

#include <omp.h>

const char sources[] = SOURCES; /* a hash of all sources: setup.py */

/* The sentences of a batch, and where their numbers are: token i of head h of sentence b is the row
   at first[b] * batch + h * head + i * row. */
struct layout {
    long batch, head, row;
};
struct rows {
    long count, shift;
};
/* Pairs of channels that rotate, of token i of sentence b by the complex numbers from
   b * batch + i * pairs on: channels 2 m and 2 m + 1, or with `halves` m and m + pairs. */
struct turns {
    const float *cosines, *sines;
    long pairs, halves, batch;
};
struct batch { /* Python fills it as an array of longs: each member has that size */
    long count, heads, dim, causal, most_queries, most_keys;
    const long *q_first, *q_count, *k_first, *k_count, *pairs; /* pairs: of sentences before */
    struct layout q, k, v, out, q_grad, k_grad, v_grad, bias, mask;
    /* Vectors by distance, (tables, R, E), or null; there is one table, or one for each head. */
    const float *keys, *values;
    long tables;
    struct rows keys_by, values_by;
    struct turns q_by, k_by;
    long stopped; /* set by Python while a call runs: what is left is skipped */
};
/* Whether Python has stopped a call. */
static inline int is_stopped(const struct batch *batch) {
    return *(const volatile long *)&batch->stopped != 0;
}

static inline const number *at(const number *x, struct layout l, const long *first, long b,
                               long h) {
    return x + first[b] * l.batch + h * l.head;
}
/* From a row of head r % H of sentence r / H to that of the next head. */
static inline long ahead_of(struct layout l, const long *first, const struct batch *s, long r) {
    if (r + 1 == s->count * s->heads) return 0;
    const number *zero = 0, *next = at(zero, l, first, (r + 1) / s->heads, (r + 1) % s->heads);
    return next - at(zero, l, first, r / s->heads, r % s->heads);
}

/* Rows of a table by distance: query i and key j have row j - i - shift, clipped to the first and the
   last. With tiles, the first and the last row are repeated MARGIN times, so that the rows of a vector
   of keys are consecutive, unless all of them are clipped to one; elsewhere larger products would cost
   more than masks do. */
#ifdef TILES
enum { MARGIN = LANES - 1 };
#else
enum { MARGIN = 0 };
#endif
/* Queries in one product for the gradients of tables, of several heads that share one (0: of one head),
   and for the gradients of keys and values. */
#ifdef PAIRS
enum { GROUP = 256, SOME = 256 };
#else
enum { GROUP = 0, SOME = 32 };
#endif
static inline long widened_by_margins(long count) { return count ? count + 2 * MARGIN : 0; }
static inline long row_in_margins(long row, long count) {
    return row < MARGIN ? 0 : row < MARGIN + count ? row - MARGIN : count - 1;
}

/* Lanes of a vector of keys whose first has row c: those with the first row of the table, those with the
   last, and the others, which have row c + lane. */
struct ends {
    lanes first, own, last;
};
static inline struct ends ends_at(long c, long count) {
    lanes first = before(1 - c), own = before(count - 1 - c) & ~first;
    return (struct ends){first, own, ~(first | own)};
}

/* The numbers of a vector of keys whose first has row c. */
static inline vector spread(const float *rows, long c, long count) {
    const float *first = rows + MARGIN, *last = first + count - 1;
    if (c >= count - 1) return all(*last);
    if (c <= 1 - LANES) return all(*first);
    const vector own = *(const vector *)(first + c);
    if (MARGIN || (c > 0 && c < count - LANES)) return own;
    const struct ends where = ends_at(c, count);
    return choose(where.last, all(*last), choose(where.first, all(*first), own));
}
/* The transpose: add a vector of keys to the sums by row, which are zero at first. Those of the first and
   last rows are added up in `first` and `last`; `collect_ends` writes them, after all `used` keys of a
   query, whose first key has row c. */
static inline void collect(vector x, part *rows, long c, long count, vector *first, vector *last) {
    if (c >= count - 1) {
        *last += x;
    } else if (c <= 1 - LANES) {
        *first += x;
    } else if (MARGIN || (c > 0 && c < count - LANES)) {
        store_part(rows + MARGIN + c, x);
    } else {
        const struct ends where = ends_at(c, count);
        store_parts(rows + c, x, where.own);
        *first += choose(where.first, x, all(0.0f));
        *last += choose(where.last, x, all(0.0f));
    }
}
static inline void collect_ends(part *rows, long c, long used, long count, vector first,
                                vector last) {
    if (!MARGIN && count == 1) {
        rows[0] = part_of(sum_of(first + last));
        return;
    }
    const long highest = c + (MARGIN ? (used - 1) / LANES * LANES : used - 1);
    if (c <= -MARGIN) rows[0] = part_of(sum_of(first));
    if (highest >= count - 1) rows[count + 2 * MARGIN - 1] = part_of(sum_of(last));
}

static inline vector as_number(vector x) {
#ifdef BF16
    return (vector)(widened(narrowed(x)) << 16);
#else
    return x;
#endif
}

static struct operand table_of(part *space, long h, long rows, long columns) {
    return operand_of(space + h * size_of(rows, columns), rows, columns);
}
static part *new_tables(struct memory *memory, long count, long rows, long columns) {
    return take(memory, count * size_of(rows, columns) * sizeof(part));
}
/* Table n of several, (rows, E), with its margins, in `space`. */
static const number *with_margins(number *space, const float *tables, long n, long rows, long E) {
    const float *table = tables + n * rows * E;
    for (long i = 0; i < widened_by_margins(rows); i++)
        for (long e = 0; e < E; e++)
            space[i * E + e] = narrow(table[row_in_margins(i, rows) * E + e]);
    return space;
}

/* Add a^T b to sums (rows, E), for `count` rows of both. */
static void add_to_table(float *sums, struct transposed a, struct operand b, long rows,
                         long count) {
    product_transposed(sums, b.columns, a, 0, 0, b, rows, b.columns, count, 1);
}
/* Add sums, in rows as wide as products write them, to the gradient of a table. */
static void add_margins(float *grad, const float *sums, long rows, long E, float scale) {
    for (long i = 0; i < widened_by_margins(rows); i++)
        for (long e = 0; e < E; e++)
            grad[row_in_margins(i, rows) * E + e] += sums[i * rounded(E) + e] * scale;
}

/* Row `i` of the scores of K keys, of which `used` are computed and `seen` are those that it sees. */
struct query {
    long i, K, used, seen;
};

/* Scores -> probabilities, in place, negated where dropped; zeros if all scores are -inf. */
static inline void softmax(float *scores, struct query at, float scale, struct rows keys,
                           const float *by_row, const number *bias, const number *mask,
                           const int16_t *draws, long threshold, number *saved) {
    vector high = all(-INFINITY), totals = all(0.0f);
    for (long j = 0; j < at.used; j += LANES) {
        vector x = *(vector *)(scores + j);
        if (keys.count) x += spread(by_row, j - at.i - keys.shift, keys.count);
        x *= scale;
        if (bias) x += load(bias + j, at.K - j);
        if (mask) x += load(mask + j, at.K - j);
        x = choose(before(at.seen - j), x, all(-INFINITY));
        high = larger(high, x);
        *(vector *)(scores + j) = x;
    }
    const float largest = finite_peak(high);
    for (long j = 0; j < at.used; j += LANES) {
        vector x = exponentials(*(vector *)(scores + j) - largest);
        totals += x;
        *(vector *)(scores + j) = x;
    }
    const float total = sum_of(totals), inverse = total == 0.0f ? 0.0f : 1.0f / total;
    for (long j = 0; j < at.used; j += LANES) {
        vector x = as_number(*(vector *)(scores + j) * inverse);
        if (draws) {
            shorts draw = *(const shorts *)(draws + j);
            x = choose(less(floats(draw), all(threshold)), -x, x);
        }
        *(vector *)(scores + j) = x;
        if (saved) store(saved + j, x, at.K - j);
    }
    for (long j = at.used; saved && j < at.K; j += LANES) store(saved + j, all(0.0f), at.K - j);
}

/* A vector of probabilities from key j on, just computed (`kept`), or else saved. */
static inline vector probability(const float *kept, const number *saved, long j, long K) {
    return kept ? *(const vector *)(kept + j) : load(saved + j, K - j);
}

/* Probabilities after dropout, and their sums by row. */
static inline void drop(part *probs, struct query at, float scale, struct rows values,
                        const float *kept, const number *saved, part *sums) {
    vector first = all(0.0f), last = all(0.0f);
    for (long j = 0; j < at.used; j += LANES) {
        vector x = probability(kept, saved, j, at.K);
        x = larger(x, all(0.0f)) * scale;
        store_part(probs + j, x);
        if (values.count) collect(x, sums, j - at.i - values.shift, values.count, &first, &last);
    }
    if (values.count) collect_ends(sums, -at.i - values.shift, at.used, values.count, first, last);
}

/* Gradients of the scores of a row, and their sums by row. `grads` and `by_row`, the parts of values and
   of their table, are the gradients of the probabilities. */
static inline void softmax_gradient(part *changes, struct query at, float scale, float *grads,
                                    struct rows values, const float *by_row, const float *kept,
                                    const number *saved, struct rows keys, part *sums,
                                    number *bias_grads, float *bias_sums) {
    vector dots = all(0.0f), first = all(0.0f), last = all(0.0f);
    for (long j = 0; j < at.used; j += LANES) {
        vector p = probability(kept, saved, j, at.K), x = *(vector *)(grads + j);
        if (values.count) x += spread(by_row, j - at.i - values.shift, values.count);
        lanes dropped = less(p, all(0.0f));
        x = choose(dropped, all(0.0f), x * scale);
        dots += p * x;
        *(vector *)(grads + j) = x;
    }
    const float dot = sum_of(dots);
    for (long j = 0; j < at.used; j += LANES) {
        vector p = probability(kept, saved, j, at.K);
        p = larger(p, -p);
        vector x = p * (*(vector *)(grads + j) - dot);
        store_part(changes + j, x);
        if (bias_grads) store(bias_grads + j, x, at.K - j);
        if (bias_sums) *(vector *)(bias_sums + j) += x;
        if (keys.count) collect(x, sums, j - at.i - keys.shift, keys.count, &first, &last);
    }
    if (keys.count) collect_ends(sums, -at.i - keys.shift, at.used, keys.count, first, last);
    for (long j = at.used; bias_grads && j < at.K; j += LANES)
        store(bias_grads + j, all(0.0f), at.K - j);
}

/* Zeros from `used` on, up to where products read. */
static inline void pad(part *row, long used) {
    for (long j = (used + LANES - 1) / LANES * LANES; j < rounded(used); j += LANES)
        store_part(row + j, all(0.0f));
}
/* Write float rows (rows, E) of a block, scaled, as numbers. */
static void write_rows(number *to, long step, const float *from, long from_step, long rows, long E,
                       float scale) {
    for (long i = 0; i < rows; i++)
        for (long e = 0; e < E; e += LANES)
            store(to + i * step + e, *(const vector *)(from + i * from_step + e) * scale, E - e);
}

static inline __attribute__((always_inline)) void rotate_pairs(float *x, const float *cosines,
                                                               const float *sines, long pairs,
                                                               const long step, long apart,
                                                               const float direction) {
#pragma omp simd
    for (long m = 0; m < pairs; m++) {
        const float a = x[m * step], b = x[m * step + apart], sine = sines[m] * direction;
        x[m * step] = a * cosines[m] - b * sine;
        x[m * step + apart] = a * sine + b * cosines[m];
    }
}
/* Rotate a row, or with direction -1 the gradient for it. */
static inline void rotate(float *x, struct turns by, long b, long i, const float direction) {
    const float *cosines = by.cosines + b * by.batch + i * by.pairs;
    const float *sines = by.sines + b * by.batch + i * by.pairs;
    if (by.halves)
        rotate_pairs(x, cosines, sines, by.pairs, 1, by.pairs, direction);
    else
        rotate_pairs(x, cosines, sines, by.pairs, 2, 1, direction);
}

/* Rows of queries or keys of one head. */
struct side {
    const number *x;
    long step, ahead;
};
static inline struct side side_of(const number *x, struct layout l, const long *first,
                                  const struct batch *s, long r) {
    return (struct side){at(x, l, first, r / s->heads, r % s->heads), l.row,
                         ahead_of(l, first, s, r)};
}
/* The rows as they are, or a rotated copy in `space`. */
static struct side rotated(number *restrict space, struct side from, struct turns by, long b,
                           long rows, long E) {
    if (!by.pairs) return from;
    float row[rounded(E)] __attribute__((aligned(64)));
    for (long i = 0; i < rows; i++) {
        const number *x = from.x + i * from.step;
        prefetch(x + from.ahead, E);
        for (long c = 0; c < E; c += LANES) *(vector *)(row + c) = load(x + c, E - c);
        rotate(row, by, b, i, 1.0f);
        for (long c = 0; c < E; c += LANES)
            store(space + i * E + c, *(const vector *)(row + c), E - c);
    }
    return (struct side){space, E, 0};
}
/* Rotate float rows of gradients back, (rows, E) of a block from token `begin` on. */
static void rotate_back(float *x, long step, struct turns by, long b, long begin, long rows) {
    for (long i = 0; by.pairs && i < rows; i++) rotate(x + i * step, by, b, begin + i, -1.0f);
}

/* Inputs of the probabilities.

   bias, mask   added to the scores, or null
   seed         of uniform 16-bit integers, four in a random word, one for each query and key: a
                probability is kept if its integer is at least `threshold` */
struct source {
    const number *q, *k, *bias, *mask;
    long seed, threshold;
};
/* One head of one sentence: its n queries and m keys, and the number of pairs before theirs. */
struct head {
    long b, h, n, m, first;
    struct side queries, keys;
};
static struct head head_of(const struct batch *s, const struct source *x, long r, number *q_space,
                           number *k_space) {
    const long b = r / s->heads, h = r % s->heads, n = s->q_count[b], m = s->k_count[b];
    struct head one = {b, h, n, m, s->pairs[b] + h * n * m, {0}, {0}};
    one.queries = rotated(q_space, side_of(x->q, s->q, s->q_first, s, r), s->q_by, b, n, s->dim);
    one.keys = rotated(k_space, side_of(x->k, s->k, s->k_first, s, r), s->k_by, b, m, s->dim);
    return one;
}
/* How many of the keys the queries before `end` see. */
static inline long seen_before(const struct batch *s, const struct head *one, long end) {
    return s->causal && end < one->n ? end + one->m - one->n : one->m;
}
static inline struct query query_of(const struct batch *s, const struct head *one, long i,
                                    long used) {
    return (struct query){i, one->m, used, seen_before(s, one, i + 1)};
}

/* Scores of a block of queries, and its products with the table of keys by distance. */
struct block {
    part *queries;
    float *scores, *by_row;
    uint64_t *words;
    long step;
    struct operand keys, table;
};
static struct block new_block(struct memory *memory, const struct batch *s, long step) {
    const long R = widened_by_margins(s->keys_by.count);
    return (struct block){take(memory, BLOCK * rounded(s->dim) * sizeof(part)),
                          take(memory, BLOCK * step * sizeof(float)),
                          take(memory, BLOCK * rounded(R) * sizeof(float)),
                          take(memory, step * sizeof(uint64_t) / 4),
                          step,
                          {0},
                          {0}};
}
static void score(const struct batch *s, const struct head *one, const struct block *to, long begin,
                  long rows, long used) {
    const long E = s->dim, wide = rounded(E), R = widened_by_margins(s->keys_by.count);
    const struct side from = one->queries;
    copy_block(to->queries, from.x + begin * from.step, from.step, from.ahead, rows, E);
    product(to->scores, to->step, to->queries, wide, to->keys, rows, used, E, 0);
    product(to->by_row, rounded(R), to->queries, wide, to->table, rows, R, E, 0);
}
/* Scores of row i of a block -> probabilities, in place. */
static inline void softmax_of(const struct batch *s, const struct source *x, const struct head *one,
                              const struct block *in, long i, struct query at, number *saved) {
    const number *bias = x->bias + one->b * s->bias.batch + one->h * s->bias.head;
    const number *mask = x->mask + one->b * s->mask.batch + one->h * s->mask.head;
    const long wide = rounded(widened_by_margins(s->keys_by.count)),
               pair = one->first + at.i * at.K;
    const int drops = x->threshold > INT16_MIN;
    if (drops) random_words(in->words, x->seed, pair / 4, (pair % 4 + at.used + 3) / 4);
    softmax(in->scores + i * in->step, at, 1.0f / sqrtf(s->dim), s->keys_by, in->by_row + i * wide,
            x->bias ? bias + at.i * s->bias.row : 0, x->mask ? mask + at.i * s->mask.row : 0,
            drops ? (const int16_t *)in->words + pair % 4 : 0, x->threshold, saved);
}

/* Attention of whole sentences.

   saved   probabilities before dropout, negated where dropped, written for `attention_backward`; or
           null */
long attention_forward(const number *q, const number *k, const number *v, const struct batch *batch,
                       const number *bias, const number *mask, long seed, long threshold,
                       float dropout_scale, number *saved, number *out, long threads) {
    const struct batch s = *batch;
    const struct source source = {q, k, bias, mask, seed, threshold};
    const long H = s.heads, E = s.dim, wide = rounded(E), most = rounded(s.most_keys);
    const long step = most + EDGE; /* of rows of scores: a power of 2 would leave the cache */
    const struct rows keys_by = s.keys_by, values_by = s.values_by;
    const long R = widened_by_margins(keys_by.count), S = widened_by_margins(values_by.count);
    struct memory shared = {0};
    part *key_tables = new_tables(&shared, s.tables, E, R);
    part *value_tables = new_tables(&shared, s.tables, S, E);
    int lacking = shared.lacks;
#pragma omp parallel num_threads(threads)
    {
        struct memory memory = {0};
        part *key_space = take(&memory, most * wide * sizeof(part));
        part *value_space = take(&memory, most * wide * sizeof(part));
        part *probs = take(&memory, BLOCK * step * sizeof(part));
        part *sums = take(&memory, BLOCK * rounded(S) * sizeof(part));
        float *heads = take(&memory, BLOCK * wide * sizeof(float));
        number *rotated_queries = take(&memory, s.most_queries * E * sizeof(number));
        number *rotated_keys = take(&memory, most * E * sizeof(number));
        number *wider = take(&memory, (R > S ? R : S) * E * sizeof(number));
        struct block block = new_block(&memory, &s, step);
        if (!any_lacks(&lacking, memory.lacks)) {
            const setting earlier = begin_tiles();
#pragma omp for schedule(static)
            for (long n = 0; n < s.tables; n++) {
                lay_out_transposed(key_tables + n * size_of(E, R),
                                   with_margins(wider, s.keys, n, keys_by.count, E), E, 0, R, E);
                lay_out(table_of(value_tables, n, S, E),
                        with_margins(wider, s.values, n, values_by.count, E), E, 0, S, E);
            }
#pragma omp for schedule(static)
            for (long r = 0; r < s.count * H; r++) {
                if (is_stopped(batch)) continue;
                const struct head one = head_of(&s, &source, r, rotated_queries, rotated_keys);
                const long b = one.b, h = one.h, n = one.n, m = one.m;
                const struct operand value_table = table_of(value_tables, h % s.tables, S, E);
                const struct operand values =
                    lay_out(operand_of(value_space, m, E), at(v, s.v, s.k_first, b, h), s.v.row,
                            ahead_of(s.v, s.k_first, &s, r), m, E);
                block.table = table_of(key_tables, h % s.tables, E, R);
                block.keys =
                    lay_out_transposed(key_space, one.keys.x, one.keys.step, one.keys.ahead, m, E);
                for (long begin = 0; begin < n && !is_stopped(batch); begin += BLOCK) {
                    const long rows = n - begin < BLOCK ? n - begin : BLOCK;
                    const long used = seen_before(&s, &one, begin + rows);
                    number *to = (number *)at(out, s.out, s.q_first, b, h) + begin * s.out.row;
                    for (long i = 0; i < rows; i++) prefetch(to + i * s.out.row, E);
                    score(&s, &one, &block, begin, rows, used);
                    memset(sums, 0, BLOCK * rounded(S) * sizeof(part));
                    for (long i = 0; i < rows; i++) {
                        const struct query row = query_of(&s, &one, begin + i, used);
                        number *kept = saved ? saved + one.first + row.i * m : 0;
                        softmax_of(&s, &source, &one, &block, i, row, kept);
                        drop(probs + i * step, row, dropout_scale, values_by,
                             block.scores + i * step, 0, sums + i * rounded(S));
                        pad(probs + i * step, used);
                    }
                    const struct factors both[] = {{probs, step, values, used},
                                                   {sums, rounded(S), value_table, S}};
                    product_of(heads, wide, both, 2, rows, E, 0);
                    write_rows(to, s.out.row, heads, wide, rows, E, 1.0f);
                }
            }
            end_tiles(earlier);
        }
        free_all(&memory);
    }
    free_all(&shared);
    return lacking ? NO_MEMORY : DONE;
}

/* Gradients of queries, keys and values, of a bias and of tables; `grad` is the gradient of the result.

   saved         of `attention_forward`; if null, probabilities are computed again
   bias_grads    of a bias that each sentence has, (count, H, most_queries, most_keys), or null
   bias_sums     of a bias that sentences share, a part for each thread, to which gradients are added:
                 (threads, H, most_queries, most_keys rounded up), or of numbers by distance, as the
                 bias is, whose row of a query begins one number before that of the query before; or null
   key_grads, value_grads   of the tables, a part for each thread */
long attention_backward(const number *q, const number *k, const number *v, const number *grad,
                        const struct batch *batch, const number *bias, const number *mask,
                        long seed, long threshold, float dropout_scale, const number *saved,
                        number *q_grad, number *k_grad, number *v_grad, number *bias_grads,
                        float *bias_sums, float *key_grads, float *value_grads, long threads) {
    const struct batch s = *batch;
    const struct source source = {q, k, bias, mask, seed, threshold};
    const float scale = 1.0f / sqrtf(s.dim);
    const long H = s.heads, E = s.dim, wide = rounded(E), most = rounded(s.most_keys);
    const long step = most + EDGE; /* as forward */
    const struct rows keys_by = s.keys_by, values_by = s.values_by;
    const long R = widened_by_margins(keys_by.count), S = widened_by_margins(values_by.count);
    /* Queries in one product: `some` for the gradients of keys and values, `room` for those of tables. */
    const long longest = rounded(s.most_queries), group = R + S && s.tables == 1 ? GROUP : 0;
    const long room = longest < group ? group : longest, some = longest < SOME ? longest : SOME;
    const long anew = saved ? 0 : 1, by_distance = s.bias.row < 0;
    struct memory shared = {0};
    part *key_tables = new_tables(&shared, s.tables, R, E);
    part *value_tables = new_tables(&shared, s.tables, E, S);
    part *transposed_tables = new_tables(&shared, s.tables, E, anew * R);
    int lacking = shared.lacks;
#pragma omp parallel num_threads(threads)
    {
        struct memory memory = {0};
        part *key_space = take(&memory, most * wide * sizeof(part));
        part *value_space = take(&memory, most * wide * sizeof(part));
        part *transposed_space = anew ? take(&memory, most * wide * sizeof(part)) : 0;
        part *grads = take(&memory, BLOCK * wide * sizeof(part));
        float *products = take(&memory, BLOCK * step * sizeof(float));
        float *by_row = take(&memory, BLOCK * rounded(S) * sizeof(float));
        float *heads = take(&memory, BLOCK * wide * sizeof(float));
        float *key_sums = take(&memory, most * wide * sizeof(float));
        float *value_sums = take(&memory, most * wide * sizeof(float));
        const size_t key_size = s.tables * size_of(R, E), value_size = s.tables * size_of(S, E);
        float *table_keys = take_zeros(&memory, key_size * sizeof(float));
        float *table_values = take_zeros(&memory, value_size * sizeof(float));
        number *rotated_queries = take(&memory, s.most_queries * E * sizeof(number));
        number *rotated_keys = take(&memory, most * E * sizeof(number));
        number *wider = take(&memory, (R > S ? R : S) * E * sizeof(number));
        struct block block = {0};
        if (anew) block = new_block(&memory, &s, step);
        /* Of some of a sentence's queries: gradients of scores, and probabilities. */
        struct transposed changes = new_transposed(&memory, step, some);
        struct transposed probs = new_transposed(&memory, step, some);
        /* Of the queries of a group: sums by row of the gradients of scores and of probabilities. */
        struct transposed key_changes = new_transposed(&memory, rounded(R), room);
        struct transposed value_probs = new_transposed(&memory, rounded(S), room);
        const struct operand queries =
            operand_of(take(&memory, room * wide * sizeof(part)), room, E);
        const struct operand heads_grads =
            operand_of(take(&memory, room * wide * sizeof(part)), room, E);
        long row = 0; /* of the group, the next one */
        if (!any_lacks(&lacking, memory.lacks)) {
            const setting earlier = begin_tiles();
#pragma omp for schedule(static)
            for (long n = 0; n < s.tables; n++) {
                const number *table = with_margins(wider, s.keys, n, keys_by.count, E);
                lay_out(table_of(key_tables, n, R, E), table, E, 0, R, E);
                if (anew)
                    lay_out_transposed(transposed_tables + n * size_of(E, R), table, E, 0, R, E);
                lay_out_transposed(value_tables + n * size_of(E, S),
                                   with_margins(wider, s.values, n, values_by.count, E), E, 0, S,
                                   E);
            }
#pragma omp for schedule(static)
            for (long r = 0; r < s.count * H; r++) {
                if (is_stopped(batch)) continue;
                const struct head one = head_of(&s, &source, r, rotated_queries, rotated_keys);
                const long b = one.b, h = one.h, n = one.n, m = one.m;
                const struct side from = one.queries, of_keys = one.keys;
                const struct operand key_table = table_of(key_tables, h % s.tables, R, E);
                const struct operand value_table = table_of(value_tables, h % s.tables, E, S);
                const number *g = at(grad, s.out, s.q_first, b, h);
                const struct operand keys = lay_out(operand_of(key_space, m, E), of_keys.x,
                                                    of_keys.step, of_keys.ahead, m, E);
                const struct operand values =
                    lay_out_transposed(value_space, at(v, s.v, s.k_first, b, h), s.v.row,
                                       ahead_of(s.v, s.k_first, &s, r), m, E);
                const struct operand own_queries =
                    lay_out(panel(queries, row, 0), from.x, from.step, from.ahead, n, E);
                const struct operand own_grads = lay_out(panel(heads_grads, row, 0), g, s.out.row,
                                                         ahead_of(s.out, s.q_first, &s, r), n, E);
                if (anew) {
                    block.keys =
                        lay_out_transposed(transposed_space, of_keys.x, of_keys.step, 0, m, E);
                    block.table = table_of(transposed_tables, h % s.tables, E, R);
                }
                const long biased = r * s.most_queries * s.most_keys;
                const long wide_bias = by_distance ? s.bias.head : s.most_queries * most;
                const long summed = (omp_get_thread_num() * H + h) * wide_bias;
                shorten(&changes, n < some ? n : some);
                shorten(&probs, n < some ? n : some);
                for (long begin = 0; begin < n && !is_stopped(batch); begin += BLOCK) {
                    const long rows = n - begin < BLOCK ? n - begin : BLOCK, place = begin % SOME;
                    const long used = seen_before(&s, &one, begin + rows);
                    number *to =
                        (number *)at(q_grad, s.q_grad, s.q_first, b, h) + begin * s.q_grad.row;
                    for (long i = 0; i < rows; i++) prefetch(to + i * s.q_grad.row, E);
                    if (anew) score(&s, &one, &block, begin, rows, used);
                    copy_block(grads, g + begin * s.out.row, s.out.row, 0, rows, E);
                    product(products, step, grads, wide, values, rows, used, E, 0);
                    product(by_row, rounded(S), grads, wide, value_table, rows, S, E, 0);
                    memset(row_of(key_changes, row + begin, 0), 0,
                           BLOCK * rounded(R) * sizeof(part));
                    memset(row_of(value_probs, row + begin, 0), 0,
                           BLOCK * rounded(S) * sizeof(part));
                    for (long i = 0; i < rows; i++) {
                        struct query at = query_of(&s, &one, begin + i, used);
                        const float *made = anew ? block.scores + i * step : 0;
                        const number *kept = saved + one.first + at.i * m;
                        part *own = row_of(changes, place, i), *own_probs = row_of(probs, place, i);
                        part *own_keys = row_of(key_changes, row + begin, i);
                        part *own_values = row_of(value_probs, row + begin, i);
                        if (anew) softmax_of(&s, &source, &one, &block, i, at, 0);
                        drop(own_probs, at, dropout_scale, values_by, made, kept, own_values);
                        softmax_gradient(
                            own, at, dropout_scale, products + i * step, values_by,
                            by_row + i * rounded(S), made, kept, keys_by, own_keys,
                            bias_grads ? bias_grads + biased + at.i * s.most_keys : 0,
                            bias_sums ? bias_sums + summed + at.i * (by_distance ? -1 : most) : 0);
                        pad(own, used);
                        pad(own_probs, used);
                    }
                    const struct factors both[] = {
                        {row_of(changes, place, 0), step, keys, used},
                        {row_of(key_changes, row + begin, 0), rounded(R), key_table, R}};
                    product_of(heads, wide, both, 2, rows, E, 0);
                    rotate_back(heads, wide, s.q_by, b, begin, rows);
                    write_rows(to, s.q_grad.row, heads, wide, rows, E, scale);
                    transpose_rows(changes, place, rows, rounded(used));
                    transpose_rows(probs, place, rows, rounded(used));
                    transpose_rows(key_changes, row + begin, rows, R);
                    transpose_rows(value_probs, row + begin, rows, S);
                    const int is_last = begin + BLOCK >= n;
                    if (!is_last && place + BLOCK < SOME) continue;
                    const long start = begin - place,
                               before = start ? seen_before(&s, &one, start) : 0;
                    for (long j = 0; j < used; j += BLOCK) {
                        const long some_keys = m - j < BLOCK ? m - j : BLOCK,
                                   hidden = j - (m - n) - start;
                        const long fully_masked =
                            s.causal && hidden > 0 ? hidden / BLOCK * BLOCK : 0;
                        const long count = place + rows;
                        number *k_to =
                            (number *)at(k_grad, s.k_grad, s.k_first, b, h) + j * s.k_grad.row;
                        number *v_to =
                            (number *)at(v_grad, s.v_grad, s.k_first, b, h) + j * s.v_grad.row;
                        float *key_rows = key_sums + j * wide, *value_rows = value_sums + j * wide;
                        for (long i = 0; is_last && i < some_keys; i++) {
                            prefetch(k_to + i * s.k_grad.row, E);
                            prefetch(v_to + i * s.v_grad.row, E);
                        }
                        product_transposed(key_rows, wide, changes, j, fully_masked,
                                           panel(own_queries, start, 0), some_keys, E, count,
                                           j < before);
                        product_transposed(value_rows, wide, probs, j, fully_masked,
                                           panel(own_grads, start, 0), some_keys, E, count,
                                           j < before);
                        if (!is_last) continue;
                        rotate_back(key_rows, wide, s.k_by, b, j, some_keys);
                        write_rows(k_to, s.k_grad.row, key_rows, wide, some_keys, E, scale);
                        write_rows(v_to, s.v_grad.row, value_rows, wide, some_keys, E, 1.0f);
                    }
                }
                row += rounded(n);
                if (row + longest > room) {
                    const long table = h % s.tables;
                    add_to_table(table_keys + table * size_of(R, E), key_changes, queries, R, row);
                    add_to_table(table_values + table * size_of(S, E), value_probs, heads_grads, S,
                                 row);
                    row = 0;
                }
            }
            add_to_table(table_keys, key_changes, queries, R, row);
            add_to_table(table_values, value_probs, heads_grads, S, row);
            end_tiles(earlier);
            const long own = omp_get_thread_num() * s.tables;
            for (long n = 0; n < s.tables; n++) {
                add_margins(key_grads + (own + n) * keys_by.count * E,
                            table_keys + n * size_of(R, E), keys_by.count, E, scale);
                add_margins(value_grads + (own + n) * values_by.count * E,
                            table_values + n * size_of(S, E), values_by.count, E, 1.0f);
            }
        }
        free_all(&memory);
    }
    free_all(&shared);
    return lacking ? NO_MEMORY : DONE;
}
