// Sides, clauses and what they state under the bindings of letters, as op_dag.prose_parser finds them.

#include "prose.h"

#define MOST_VALUE 1000000000000000LL

static uint64_t modulo(long long number) {
    const long long rest = number % (long long)PRIME;
    return rest < 0 ? rest + (long long)PRIME : rest;
}
static uint64_t print_product(uint64_t a, uint64_t b) { return (unsigned __int128)a * b % PRIME; }
static uint64_t print_sum(uint64_t a, uint64_t b) { return (a + b) % PRIME; }
static uint64_t print_negated(uint64_t a) { return a ? PRIME - a : 0; }

void set_plain(Bound *out, uint64_t reach, int known, Form form, uint64_t print) {
    out->reach = reach, out->known = known, out->form = form, out->print = print, out->count = 0;
}

void set_node(const Reading *reading, Bound *out, int place) {
    set_plain(out, BIT(place), 1, reading->problem->forms[place], reading->weights[place]);
}

uint64_t print_of(const Node *node, const uint64_t *weights) {
    uint64_t total = 0;
    for (int at = 0; at < node->count; at++) {
        const uint64_t weight = weights[node->parents[at]];
        total = print_sum(total, node->minus && at ? print_negated(weight) : weight);
    }
    if (!node->has_constant) return total;
    return node->operator == '*' ? print_product(total, modulo(node->constant)) : print_sum(total, modulo(node->constant));
}

// Sides, clauses and sentences.

static int digits(Text text, long *at) {
    const long start = *at;
    while (*at < text.size && is_digit(text.at[*at])) ++*at;
    return *at > start;
}

// `2*x` or `x` at `at`.
static int multiple(Text text, long *at) {
    long end = *at;
    if (digits(text, &end)) {
        if (end >= text.size || text.at[end] != '*') return 0;
        end++;
    }
    if (end >= text.size || !is_letter(text.at[end])) return 0;
    *at = end + 1;
    return 1;
}

// Whether the text is a number or a linear form with one term of each kind.
static int is_result(Text text) {
    const long start = text.size && text.at[0] == '-';
    long at = start;
    if (multiple(text, &at)) {
        if (at == text.size) return 1;
        if (text.at[at] != '-' && text.at[at] != '+') return 0;
        at++;
        return digits(text, &at) && at == text.size;
    }
    at = start;
    if (!digits(text, &at)) return 0;
    if (at == text.size) return 1;
    if (text.at[at] != '-' && text.at[at] != '+') return 0;
    at++;
    return multiple(text, &at) && at == text.size;
}

// The text with `a` followed by `b` replaced by `with`, in place; its size.
static long replaced(char *text, long size, char a, char b, char with) {
    long kept = 0;
    for (long at = 0; at < size; at++) {
        const int found = text[at] == a && at + 1 < size && text[at + 1] == b;
        text[kept++] = found ? with : text[at];
        at += found;
    }
    return kept;
}

int parse_side(Reading *reading, char *text, long size) {
    if (size > SIDE) return 0;
    size = replaced(text, size, '+', '-', '-');
    size = replaced(text, size, '-', '-', '+');
    Term *terms = reading->terms + reading->term_count;
    const long count = parse_expression((Text){text, size}, terms);
    if (!count) return 0;
    Side *side = reading->sides + reading->side_count++;
    side->first = reading->term_count, side->count = count;
    side->letters = letters_of(terms, count);
    const int one = side->letters && !(side->letters & (side->letters - 1));
    side->known = evaluate(terms, count, one ? side->letters : 0, 0, &side->form);
    side->result = is_result((Text){text, size});
    reading->term_count += count;
    return 1;
}

long next_side(Text *rest, char *out) {
    long size = 0, at = 0;
    for (; at < rest->size && rest->at[at] != '='; at++)
        if (rest->at[at] != ' ') {
            if (size <= SIDE) out[size] = rest->at[at];
            size += size <= SIDE;
        }
    *rest = at < rest->size ? after(*rest, at + 1) : (Text){NULL, 0};
    return size;
}

int parse_clause(Reading *reading, Text text) {
    char side[SIDE + 1];
    const long size = next_side(&text, side);
    if (size != 1 || !is_letter(side[0]) || !text.at) return 0;
    Clause *clause = reading->clauses + reading->clause_count++;
    *clause = (Clause){letter_of(side[0]), reading->side_count, 0};
    while (text.at) {
        const long length = next_side(&text, side);
        if (!parse_side(reading, side, length)) return 0;
        clause->count++;
    }
    return 1;
}

// The sides of the letters' values.

int form_of(const Reading *reading, const Term *terms, long count, Form *out, uint64_t *print) {
    Form total = {0, 0}, term = {0, 0};
    uint64_t sum = 0, product = 0;
    int known = 1;
    for (long at = 0; at < count; at++) {
        const Term *each = terms + at;
        Form form = each->form;
        uint64_t number = modulo(form.rest);
        int has_form = 1;
        if (each->kind == LETTER) {
            const int bound = (reading->bound & BIT(each->letter)) != 0;
            has_form = bound && reading->bounds[each->letter].known;
            number = bound ? reading->bounds[each->letter].print : 0;
            if (has_form) form = reading->bounds[each->letter].form;
        } else if (each->kind == BRACKET) {
            has_form = form_of(reading, each + 1, each->count, &form, &number);
            at += each->count;
        }
        if (!has_form) known = 0, form = (Form){0, 0};
        if (each->sign == '*') {
            known = known && !(term.slope && form.slope);
            term = (Form){plus(times(term.slope, form.rest), times(form.slope, term.rest)), times(term.rest, form.rest)};
            product = print_product(product, number);
        } else {
            const int negative = each->sign == '-';
            total = (Form){plus(total.slope, term.slope), plus(total.rest, term.rest)};
            sum = print_sum(sum, product);
            term = negative ? (Form){minus(0, form.slope), minus(0, form.rest)} : form;
            product = negative ? print_negated(number) : number;
        }
    }
    *out = (Form){plus(total.slope, term.slope), plus(total.rest, term.rest)};
    *print = print_sum(sum, product);
    if (unsure) return 0;
    const long long slope = out->slope < 0 ? minus(0, out->slope) : out->slope, rest = out->rest < 0 ? minus(0, out->rest) : out->rest;
    return known && plus(slope, rest) < MOST_VALUE;
}

static int compare_numbers(const void *a, const void *b) {
    const long long left = *(const long long *)a, right = *(const long long *)b;
    return (left > right) - (left < right);
}

static long long size_of(long long number) { return number < 0 ? minus(0, number) : number; }

// The sizes of the constant parts of a side's numbers, at `out`.
static long operand_sizes(const Reading *reading, const Side *side, long long *out) {
    Form forms[SIDE + 1];
    const long count = number_operands(reading->terms + side->first, side->count, 0, forms);
    for (long at = 0; at < count; at++) out[at] = size_of(forms[at].rest);
    return count;
}

// Whether the numbers substituted into the first side are the values of its letters, all of which have one.
static int substituted(const Reading *reading, const Clause *clause) {
    const Side *first = reading->sides + clause->first;
    const Term *terms = reading->terms + first->first;
    long long given[2 * SIDE + 2], stated[SIDE + 1];
    long count = 0;
    for (long at = 0; at < first->count; at++)
        if (terms[at].kind == LETTER) {
            const Form form = reading->bounds[terms[at].letter].form;
            if (form.slope) return 1;
            given[count++] = size_of(form.rest);
        }
    for (long number = 1; number < clause->count; number++) {
        const Side *side = first + number;
        if (side->letters) continue;
        const long operands = operand_sizes(reading, side, stated);
        if (operands < 2) continue;
        count += operand_sizes(reading, first, given + count);
        if (count != operands) return 0;
        qsort(given, count, sizeof *given, compare_numbers);
        qsort(stated, count, sizeof *stated, compare_numbers);
        return !memcmp(given, stated, count * sizeof *given);
    }
    return 1;
}

// The first CONSTANTS constants of a side and of its letters, sorted.
static void set_constants(const Reading *reading, const Side *side, Bound *out) {
    Form forms[SIDE + 1];
    const Term *terms = reading->terms + side->first;
    const long numbers = number_operands(terms, side->count, 0, forms);
    long count = 0;
    for (long at = 0; at < numbers && count < CONSTANTS; at++) out->constants[count++] = forms[at].rest;
    for (long at = 0; at < side->count; at++) {
        if (terms[at].kind != LETTER || !(reading->bound & BIT(terms[at].letter))) continue;
        const Bound *read = reading->bounds + terms[at].letter;
        for (long number = 0; number < read->count && count < CONSTANTS; number++) out->constants[count++] = read->constants[number];
    }
    qsort(out->constants, count, sizeof *out->constants, compare_numbers);
    out->count = count;
}

void state_clause(const Reading *reading, const Clause *clause, Statement *out) {
    const Side *sides = reading->sides + clause->first, *first = sides, *last = sides + clause->count - 1;
    const uint64_t unknown = reading->unknown < 0 ? 0 : BIT(reading->unknown);
    const Side *plain = NULL;
    uint64_t names = first->letters;
    out->sound = 1, out->has_value = 0, out->value = (Form){0, 0};
    for (const Side *side = sides; side <= last; side++) {
        if (side->letters && side->letters != unknown) {
            if (side != first) names |= side->letters & ~unknown;
            continue;
        }
        if (!plain) plain = side;
        if (!side->known || !plain->known || !same(side->form, plain->form)) out->sound = 0;
        if (side == last && side->result && side->known) out->has_value = 1, out->value = side->form;
    }
    Form derived;
    uint64_t print;
    const int has_form = form_of(reading, reading->terms + first->first, first->count, &derived, &print);
    uint64_t reach = 0;
    int valued = first->letters != 0;
    for (int letter = 0; letter < 52; letter++) {
        if (!(names & BIT(letter))) continue;
        const int bound = (reading->bound & BIT(letter)) != 0;
        reach |= bound ? reading->bounds[letter].reach : BIT(UNBOUND);
        if (first->letters & BIT(letter) && !(bound && reading->bounds[letter].known)) valued = 0;
    }
    if (out->sound && valued) out->sound = substituted(reading, clause);
    set_plain(&out->bound, reach, out->has_value || has_form, out->has_value ? out->value : derived, print);
    set_constants(reading, first, &out->bound);
    out->named = names != 0;
    out->follows = !out->has_value || (has_form && same(out->value, derived));
}
