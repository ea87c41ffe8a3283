/* Attention of whole sentences, forward and backward: scores, softmax, dropout and outputs of 32
   queries of one head at a time, in the cache of a core; with vectors by distance (Shaw et al. 2018)
   that are added to keys and values. On a processor with AMX, products of bfloat16 are its tiles. */

#include "products.h"

#include <omp.h>

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
struct batch { /* all members are as long as a long */
    long count, heads, dim, causal, most_queries, most_keys;
    const long *q_first, *q_count, *k_first, *k_count, *pairs; /* pairs: of sentences before */
    struct layout q, k, v, out, q_grad, k_grad, v_grad, bias, mask;
    /* Vectors by distance, (tables, R, E), or null; there is one table, or one for each head. */
    const float *keys, *values;
    long tables;
    struct rows keys_by, values_by;
    struct turns q_by, k_by;
};

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

/* Rows of a table by distance: pair j of query i has row j - i - shift, or the first or the last if
   there is none. A product of tiles has those two MARGIN times more, so that the rows of a vector of
   pairs lie one after the other, unless all of them are the first, or the last; elsewhere products
   cost more than masks. */
#ifdef TILES
enum { MARGIN = LANES - 1, GROUP = 256 };
#else
enum { MARGIN = 0, GROUP = 0 };
#endif
static inline long widened_by_margins(long count) { return count ? count + 2 * MARGIN : 0; }
static inline long row_in_margins(long row, long count) {
    return row < MARGIN ? 0 : row < MARGIN + count ? row - MARGIN : count - 1;
}

/* In a vector of pairs that begins at row c, `first` and `last` are the lanes of those two, and `own`
   the others, which have row c + lane. */
struct ends {
    lanes first, own, last;
};
static inline struct ends ends_at(long c, long count) {
    lanes first = before(1 - c), own = before(count - 1 - c) & ~first;
    return (struct ends){first, own, ~(first | own)};
}

/* The numbers of a vector of pairs that begins at row c. */
static inline vector spread(const float *rows, long c, long count) {
    const float *first = rows + MARGIN, *last = first + count - 1;
    if (c >= count - 1) return all(*last);
    if (c <= 1 - LANES) return all(*first);
    const vector own = *(const vector *)(first + c);
    if (MARGIN) return own;
    const struct ends where = ends_at(c, count);
    return choose(where.last, all(*last), choose(where.first, all(*first), own));
}
/* The transpose: sums by row of a vector of pairs, which are zero before; those of the first and last
   rows are kept, and written when all `used` pairs of a query, from row c on, are there. */
static inline void collect(vector x, part *rows, long c, long count, vector *first, vector *last) {
    if (c >= count - 1) {
        *last += x;
    } else if (c <= 1 - LANES) {
        *first += x;
    } else if (MARGIN) {
        store_part(rows + MARGIN + c, x);
    } else {
        const struct ends where = ends_at(c, count);
        store_part_lanes(rows + c, x, where.own);
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
static part *new_tables(long count, long rows, long columns) {
    return aligned_alloc(64, count * size_of(rows, columns) * sizeof(part));
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
static void add_to_table(float *sums, struct turned a, struct operand b, long rows, long count) {
    product_turned(sums, b.columns, a, 0, 0, b, rows, b.columns, count, 1);
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

/* Scores -> probabilities, in place; -x is one that is dropped. */
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
        high = choose(less(high, x), x, high);
        *(vector *)(scores + j) = x;
    }
    const float largest = largest_of(high);
    for (long j = 0; j < at.used; j += LANES) {
        vector x = exponentials(*(vector *)(scores + j) - largest);
        totals += x;
        *(vector *)(scores + j) = x;
    }
    const float inverse = 1.0f / sum_of(totals); /* NaN if all are -inf, as PyTorch's */
    for (long j = 0; j < at.used; j += LANES) {
        vector x = as_number(*(vector *)(scores + j) * inverse);
        if (draws) {
            shorts draw = (shorts)load_some_halves(draws + j, at.K - j);
            x = choose(less(floats(draw), all(threshold)), -x, x);
        }
        *(vector *)(scores + j) = x;
        if (saved) store(saved + j, x, at.K - j);
    }
    for (long j = at.used; saved && j < at.K; j += LANES) store(saved + j, all(0.0f), at.K - j);
}

/* Probabilities after dropout, and their sums by row, which are zero before. */
static inline void drop(part *probs, struct query at, float scale, struct rows values,
                        const float *kept, const number *saved, part *sums) {
    vector first = all(0.0f), last = all(0.0f);
    for (long j = 0; j < at.used; j += LANES) {
        vector x = kept ? *(const vector *)(kept + j) : load(saved + j, at.K - j);
        x = choose(less(x, all(0.0f)), all(0.0f), x * scale);
        store_part(probs + j, x);
        if (values.count) collect(x, sums, j - at.i - values.shift, values.count, &first, &last);
    }
    if (values.count) collect_ends(sums, -at.i - values.shift, at.used, values.count, first, last);
}

/* Gradients of the scores of a row for `grads`, those of the probabilities, to which `by_row` is
   added; and their sums by row, which are zero before. */
static inline void softmax_gradient(part *changes, struct query at, float scale, float *grads,
                                    struct rows values, const float *by_row, const number *saved,
                                    struct rows keys, part *sums, number *bias_grads,
                                    float *bias_sums) {
    vector dots = all(0.0f), first = all(0.0f), last = all(0.0f);
    for (long j = 0; j < at.used; j += LANES) {
        vector p = load(saved + j, at.K - j), x = *(vector *)(grads + j);
        if (values.count) x += spread(by_row, j - at.i - values.shift, values.count);
        lanes dropped = less(p, all(0.0f));
        x = choose(dropped, all(0.0f), x * scale);
        dots += p * x;
        *(vector *)(grads + j) = x;
    }
    const float dot = sum_of(dots);
    for (long j = 0; j < at.used; j += LANES) {
        vector p = load(saved + j, at.K - j);
        p = choose(less(p, all(0.0f)), -p, p);
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

/* Zeros between `used` and what products read. */
static inline void pad(part *row, long used) {
    for (long j = (used + LANES - 1) / LANES * LANES; j < rounded(used); j += LANES)
        store_part(row + j, all(0.0f));
}
/* Float rows (rows, E) of a block, scaled, -> numbers. */
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
/* As they are, or rotated in `space`. */
static struct side rotated(number *restrict space, struct side from, struct turns by, long b,
                           long rows, long E) {
    if (!by.pairs) return from;
    float row[rounded(E)] __attribute__((aligned(64)));
    for (long i = 0; i < rows; i++) {
        const number *x = from.x + i * from.step;
        fetch(x + from.ahead, E);
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

/* Attention of whole sentences.

   bias, mask   added to the scores, or null
   draws   uniform 16-bit integers, one for each pair: a probability is kept from the threshold on;
           or null
   saved   probabilities before dropout, with a minus where dropped; or null. With `again` they are
           read, and nothing but `out` is computed */
void attention_forward(const number *q, const number *k, const number *v, const struct batch *batch,
                       const number *bias, const number *mask, const int16_t *draws, long threshold,
                       float dropout_scale, number *saved, long again, number *out, long threads) {
    const struct batch s = *batch;
    const float scale = 1.0f / sqrtf(s.dim);
    const long H = s.heads, E = s.dim, wide = rounded(E), most = rounded(s.most_keys);
    const struct rows keys_by = s.keys_by, values_by = s.values_by;
    const long R = widened_by_margins(keys_by.count), S = widened_by_margins(values_by.count);
    part *key_space = new_tables(s.tables, E, R), *value_space = new_tables(s.tables, S, E);
    const size_t sizes[] = {
        most * wide * sizeof(part),          most * wide * sizeof(part),
        BLOCK * wide * sizeof(part),         BLOCK * most * sizeof(part),
        BLOCK * rounded(S) * sizeof(part),   BLOCK * most * sizeof(float),
        BLOCK * rounded(R) * sizeof(float),  BLOCK * wide * sizeof(float),
        most * E * sizeof(number),           s.most_queries * E * sizeof(number),
        (R > S ? R : S) * E * sizeof(number)};
    enum { COUNT = sizeof sizes / sizeof *sizes };
#pragma omp parallel num_threads(threads)
    {
        void *spaces[COUNT];
        char *memory = divide(sizes, COUNT, spaces);
        part *queries = spaces[2], *probs = spaces[3], *sums = spaces[4];
        float *scores = spaces[5], *by_row = spaces[6], *heads = spaces[7];
        const setting earlier = begin_tiles();
#pragma omp for schedule(static)
        for (long n = 0; n < s.tables; n++) {
            lay_out_turned(key_space + n * size_of(E, R),
                           with_margins(spaces[10], s.keys, n, keys_by.count, E), E, 0, R, E);
            lay_out(table_of(value_space, n, S, E),
                    with_margins(spaces[10], s.values, n, values_by.count, E), E, 0, S, E);
        }
#pragma omp for schedule(static)
        for (long r = 0; r < s.count * H; r++) {
            const long b = r / H, h = r % H, n = s.q_count[b], m = s.k_count[b];
            const struct operand key_table = table_of(key_space, h % s.tables, E, R);
            const struct operand value_table = table_of(value_space, h % s.tables, S, E);
            const struct operand values =
                lay_out(operand_of(spaces[0], m, E), at(v, s.v, s.k_first, b, h), s.v.row,
                        ahead_of(s.v, s.k_first, &s, r), m, E);
            struct operand keys = values; /* not used with `again` */
            struct side from = side_of(q, s.q, s.q_first, &s, r);
            if (!again) {
                const struct side of_keys =
                    rotated(spaces[8], side_of(k, s.k, s.k_first, &s, r), s.k_by, b, m, E);
                keys = lay_out_turned(spaces[1], of_keys.x, of_keys.step, of_keys.ahead, m, E);
                from = rotated(spaces[9], from, s.q_by, b, n, E);
            }
            for (long begin = 0; begin < n; begin += BLOCK) {
                const long rows = n - begin < BLOCK ? n - begin : BLOCK, end = begin + rows + m - n;
                const long used = s.causal && end < m ? end : m;
                number *to = (number *)at(out, s.out, s.q_first, b, h) + begin * s.out.row;
                for (long i = 0; i < rows; i++) fetch(to + i * s.out.row, E);
                if (!again) {
                    copy_block(queries, from.x + begin * from.step, from.step, from.ahead, rows, E);
                    product(scores, most, queries, wide, keys, rows, used, E, 0);
                    product(by_row, rounded(R), queries, wide, key_table, rows, R, E, 0);
                }
                memset(sums, 0, BLOCK * rounded(S) * sizeof(part));
                for (long i = 0; i < rows; i++) {
                    const struct query one = {begin + i, m, used,
                                              s.causal ? begin + i + 1 + m - n : m};
                    const long first = s.pairs[b] + (h * n + begin + i) * m;
                    const number *biased =
                        bias + b * s.bias.batch + h * s.bias.head + one.i * s.bias.row;
                    const number *masked =
                        mask + b * s.mask.batch + h * s.mask.head + one.i * s.mask.row;
                    number *kept = saved ? saved + first : 0;
                    if (!again)
                        softmax(scores + i * most, one, scale, keys_by, by_row + i * rounded(R),
                                bias ? biased : 0, mask ? masked : 0, draws ? draws + first : 0,
                                threshold, kept);
                    drop(probs + i * most, one, dropout_scale, values_by,
                         again ? 0 : scores + i * most, kept, sums + i * rounded(S));
                    pad(probs + i * most, used);
                }
                const struct factors both[] = {{probs, most, values, used},
                                               {sums, rounded(S), value_table, S}};
                product_of(heads, wide, both, 2, rows, E, 0);
                write_rows(to, s.out.row, heads, wide, rows, E, 1.0f);
            }
        }
        end_tiles(earlier);
        free(memory);
    }
    free(key_space);
    free(value_space);
}

/* The gradients of queries, keys and values, for `grad`, that of the result; those of each sentence's
   bias, (count, H, most_queries, most_keys), or added to bias_sums, (threads, H, most_queries,
   most_keys rounded up), those of a bias that sentences share; and those of the tables, a part for
   each thread. */
void attention_backward(const number *q, const number *k, const number *v, const number *grad,
                        const struct batch *batch, float dropout_scale, const number *saved,
                        number *q_grad, number *k_grad, number *v_grad, number *bias_grads,
                        float *bias_sums, float *key_grads, float *value_grads, long threads) {
    const struct batch s = *batch;
    const float scale = 1.0f / sqrtf(s.dim);
    const long H = s.heads, E = s.dim, wide = rounded(E), most = rounded(s.most_keys);
    const struct rows keys_by = s.keys_by, values_by = s.values_by;
    const long R = widened_by_margins(keys_by.count), S = widened_by_margins(values_by.count);
    /* Rows of queries whose products for the tables' gradients are computed at a time. */
    const long longest = rounded(s.most_queries), group = R + S && s.tables == 1 ? GROUP : 0;
    const long room = longest < group ? group : longest;
    part *key_space = new_tables(s.tables, R, E), *value_space = new_tables(s.tables, E, S);
    const size_t sizes[] = {most * wide * sizeof(part),
                            most * wide * sizeof(part),
                            room * wide * sizeof(part),
                            room * wide * sizeof(part),
                            BLOCK * wide * sizeof(part),
                            BLOCK * most * sizeof(float),
                            BLOCK * rounded(S) * sizeof(float),
                            BLOCK * wide * sizeof(float),
                            s.tables * size_of(R, E) * sizeof(float),
                            s.tables * size_of(S, E) * sizeof(float),
                            BLOCK * most * sizeof(part),
                            longest * most * sizeof(part),
                            BLOCK * most * sizeof(part),
                            longest * most * sizeof(part),
                            BLOCK * rounded(R) * sizeof(part),
                            room * rounded(R) * sizeof(part),
                            BLOCK * rounded(S) * sizeof(part),
                            room * rounded(S) * sizeof(part),
                            most * E * sizeof(number),
                            s.most_queries * E * sizeof(number),
                            (R > S ? R : S) * E * sizeof(number)};
    enum { COUNT = sizeof sizes / sizeof *sizes };
#pragma omp parallel num_threads(threads)
    {
        void *spaces[COUNT];
        char *memory = divide(sizes, COUNT, spaces);
        part *grads = spaces[4];
        float *products = spaces[5], *by_row = spaces[6], *heads = spaces[7];
        float *key_sums = spaces[8], *value_sums = spaces[9];
        memset(key_sums, 0, sizes[8]);
        memset(value_sums, 0, sizes[9]);
        /* Of the queries of a group: sums by row of the gradients of scores and of probabilities. */
        struct turned key_changes = turned_of(spaces + 14, rounded(R), room);
        struct turned value_probs = turned_of(spaces + 16, rounded(S), room);
        const struct operand queries = operand_of(spaces[2], room, E);
        const struct operand heads_grads = operand_of(spaces[3], room, E);
        long row = 0; /* of the group, the next one */
        const setting earlier = begin_tiles();
#pragma omp for schedule(static)
        for (long n = 0; n < s.tables; n++) {
            lay_out(table_of(key_space, n, R, E),
                    with_margins(spaces[20], s.keys, n, keys_by.count, E), E, 0, R, E);
            lay_out_turned(value_space + n * size_of(E, S),
                           with_margins(spaces[20], s.values, n, values_by.count, E), E, 0, S, E);
        }
#pragma omp for schedule(static)
        for (long r = 0; r < s.count * H; r++) {
            const long b = r / H, h = r % H, n = s.q_count[b], m = s.k_count[b];
            const struct operand key_table = table_of(key_space, h % s.tables, R, E);
            const struct operand value_table = table_of(value_space, h % s.tables, E, S);
            const number *g = at(grad, s.out, s.q_first, b, h);
            const struct side of_keys =
                rotated(spaces[18], side_of(k, s.k, s.k_first, &s, r), s.k_by, b, m, E);
            const struct side from =
                rotated(spaces[19], side_of(q, s.q, s.q_first, &s, r), s.q_by, b, n, E);
            const struct operand keys =
                lay_out(operand_of(spaces[0], m, E), of_keys.x, of_keys.step, of_keys.ahead, m, E);
            const struct operand values =
                lay_out_turned(spaces[1], at(v, s.v, s.k_first, b, h), s.v.row,
                               ahead_of(s.v, s.k_first, &s, r), m, E);
            const struct operand own_queries =
                lay_out(panel(queries, row, 0), from.x, from.step, from.ahead, n, E);
            const struct operand own_grads = lay_out(panel(heads_grads, row, 0), g, s.out.row,
                                                     ahead_of(s.out, s.q_first, &s, r), n, E);
            const long biased = r * s.most_queries * s.most_keys;
            const long shared = (omp_get_thread_num() * H + h) * s.most_queries * most;
            /* Of the sentence's queries: gradients of scores, and probabilities. */
            struct turned changes = turned_of(spaces + 10, most, n);
            struct turned probs = turned_of(spaces + 12, most, n);
            for (long begin = 0; begin < n; begin += BLOCK) {
                const long rows = n - begin < BLOCK ? n - begin : BLOCK, end = begin + rows + m - n;
                const long used = s.causal && end < m ? end : m;
                number *to = (number *)at(q_grad, s.q_grad, s.q_first, b, h) + begin * s.q_grad.row;
                for (long i = 0; i < rows; i++) fetch(to + i * s.q_grad.row, E);
                copy_block(grads, g + begin * s.out.row, s.out.row, 0, rows, E);
                product(products, most, grads, wide, values, rows, used, E, 0);
                product(by_row, rounded(S), grads, wide, value_table, rows, S, E, 0);
                memset(row_of(key_changes, row + begin, 0), 0, BLOCK * rounded(R) * sizeof(part));
                memset(row_of(value_probs, row + begin, 0), 0, BLOCK * rounded(S) * sizeof(part));
                for (long i = 0; i < rows; i++) {
                    const struct query one = {begin + i, m, used, m};
                    const number *kept = saved + s.pairs[b] + (h * n + begin + i) * m;
                    part *own = row_of(changes, begin, i), *own_probs = row_of(probs, begin, i);
                    part *own_keys = row_of(key_changes, row + begin, i);
                    part *own_values = row_of(value_probs, row + begin, i);
                    drop(own_probs, one, dropout_scale, values_by, 0, kept, own_values);
                    softmax_gradient(own, one, dropout_scale, products + i * most, values_by,
                                     by_row + i * rounded(S), kept, keys_by, own_keys,
                                     bias_grads ? bias_grads + biased + one.i * s.most_keys : 0,
                                     bias_sums ? bias_sums + shared + one.i * most : 0);
                    pad(own, used);
                    pad(own_probs, used);
                }
                const struct factors both[] = {
                    {row_of(changes, begin, 0), most, keys, used},
                    {row_of(key_changes, row + begin, 0), rounded(R), key_table, R}};
                product_of(heads, wide, both, 2, rows, E, 0);
                rotate_back(heads, wide, s.q_by, b, begin, rows);
                write_rows(to, s.q_grad.row, heads, wide, rows, E, scale);
                turn_rows(changes, begin, rows, rounded(used));
                turn_rows(probs, begin, rows, rounded(used));
                turn_rows(key_changes, row + begin, rows, R);
                turn_rows(value_probs, row + begin, rows, S);
            }
            for (long j = 0; j < m; j += BLOCK) {
                const long rows = m - j < BLOCK ? m - j : BLOCK;
                const long blind = s.causal && j > m - n ? (j - (m - n)) / BLOCK * BLOCK : 0;
                number *k_to = (number *)at(k_grad, s.k_grad, s.k_first, b, h) + j * s.k_grad.row;
                number *v_to = (number *)at(v_grad, s.v_grad, s.k_first, b, h) + j * s.v_grad.row;
                for (long i = 0; i < rows; i++) {
                    fetch(k_to + i * s.k_grad.row, E);
                    fetch(v_to + i * s.v_grad.row, E);
                }
                product_turned(heads, wide, changes, j, blind, own_queries, rows, E, n, 0);
                rotate_back(heads, wide, s.k_by, b, j, rows);
                write_rows(k_to, s.k_grad.row, heads, wide, rows, E, scale);
                product_turned(heads, wide, probs, j, blind, own_grads, rows, E, n, 0);
                write_rows(v_to, s.v_grad.row, heads, wide, rows, E, 1.0f);
            }
            row += rounded(n);
            if (row + longest > room) {
                const long table = h % s.tables;
                add_to_table(key_sums + table * size_of(R, E), key_changes, queries, R, row);
                add_to_table(value_sums + table * size_of(S, E), value_probs, heads_grads, S, row);
                row = 0;
            }
        }
        add_to_table(key_sums, key_changes, queries, R, row);
        add_to_table(value_sums, value_probs, heads_grads, S, row);
        end_tiles(earlier);
        const long own = omp_get_thread_num() * s.tables;
        for (long n = 0; n < s.tables; n++) {
            add_margins(key_grads + (own + n) * keys_by.count * E, key_sums + n * size_of(R, E),
                        keys_by.count, E, scale);
            add_margins(value_grads + (own + n) * values_by.count * E,
                        value_sums + n * size_of(S, E), values_by.count, E, 1.0f);
        }
        free(memory);
    }
    free(key_space);
    free(value_space);
}
