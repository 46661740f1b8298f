// Expressions of solutions, as op_dag.terse parses and evaluates them.

#include "op_dag.h"

#define MOST_DIGITS 18

// One letter, number or multiple of the unknown at `at`; its end, or -1.
static long parse_atom(Text text, long at, Term *term) {
    if (at >= text.size) return -1;
    const char c = text.at[at];
    if (is_letter(c)) {
        *term = (Term){term->sign, LETTER, 0, letter_of(c), {0, 0}};
        return at + 1;
    }
    long end = at;
    long long number = 0;
    if (c == '0') {
        end++;
    } else {
        while (end < text.size && is_digit(text.at[end]) && end - at < MOST_DIGITS) number = number * 10 + (text.at[end++] - '0');
    }
    const int has_digits = end > at;
    if (end < text.size && text.at[end] == '_') {
        *term = (Term){term->sign, NUMBER, 0, 1, {has_digits ? number : 1, 0}};
        return end + 1;
    }
    *term = (Term){term->sign, NUMBER, 0, 0, {0, number}};
    return has_digits ? end : -1;
}

long parse_expression(Text text, Term *terms) {
    long at = 0, count = 0;
    char sign = '+';
    if (text.size && text.at[0] == '-') sign = '-', at = 1;
    for (;;) {
        Term *term = terms + count++;
        term->sign = sign;
        if (at < text.size && text.at[at] == '(') {
            const long first = count;
            char inner = '+';
            at++;
            if (at < text.size && text.at[at] == '-') inner = '-', at++;
            for (;;) {
                terms[count].sign = inner;
                at = parse_atom(text, at, terms + count++);
                if (at < 0 || at >= text.size) return 0;
                if (!is_sign(text.at[at])) break;
                inner = text.at[at++];
            }
            if (text.at[at++] != ')') return 0;
            *term = (Term){sign, BRACKET, (int)(count - first), 0, {0, 0}};
        } else {
            at = parse_atom(text, at, term);
            if (at < 0) return 0;
        }
        if (at == text.size) return count;
        if (!is_sign(text.at[at])) return 0;
        sign = text.at[at++];
    }
}

long long residue(long long value, long long modulus) {
    if (!modulus) return value;
    const long long rest = value % modulus;
    return rest < 0 ? rest + modulus : rest;
}

int evaluate(const Term *terms, long count, uint64_t known, long long modulus, Form *out) {
    Form total = {0, 0}, term = {0, 0};
    for (long at = 0; at < count; at++) {
        const Term *each = terms + at;
        Form form = each->form;
        if (each->kind == LETTER) {
            if (!(known & BIT(each->letter))) return 0;
            form = (Form){1, 0};
        } else if (each->kind == BRACKET) {
            if (!evaluate(each + 1, each->count, known, modulus, &form)) return 0;
            at += each->count;
        }
        if (each->sign == '*') {
            if (term.slope && form.slope) return 0;
            term = (Form){plus(times(term.slope, form.rest), times(form.slope, term.rest)), times(term.rest, form.rest)};
        } else {
            total = (Form){plus(total.slope, term.slope), plus(total.rest, term.rest)};
            term = each->sign == '+' ? form : (Form){minus(0, form.slope), minus(0, form.rest)};
        }
    }
    *out = (Form){residue(plus(total.slope, term.slope), modulus), residue(plus(total.rest, term.rest), modulus)};
    return 1;
}

void sort_forms(Form *forms, long count) {
    for (long at = 1; at < count; at++) {
        const Form moved = forms[at];
        long place = at;
        for (; place > 0; place--) {
            const Form below = forms[place - 1];
            if (below.slope < moved.slope || (below.slope == moved.slope && below.rest <= moved.rest)) break;
            forms[place] = below;
        }
        forms[place] = moved;
    }
}

long number_operands(const Term *terms, long count, long long modulus, Form *out) {
    long found = 0;
    for (long at = 0; at < count; at++) {
        const Term *each = terms + at;
        Form form = each->form;
        int known = each->kind == NUMBER;
        if (each->kind == BRACKET) {
            known = evaluate(each + 1, each->count, 0, modulus, &form);
            at += each->count;
        }
        if (known) out[found++] = (Form){residue(form.slope, modulus), residue(form.rest, modulus)};
    }
    sort_forms(out, found);
    return found;
}

int operators_of(const Term *terms, long count) {
    int found = terms[0].sign == '-' ? 2 : 0;
    for (long at = 0; at < count; at++) {
        if (at) found |= terms[at].sign == '+' ? 1 : terms[at].sign == '-' ? 2 : 4;
        if (terms[at].kind == BRACKET) at += terms[at].count;
    }
    return found;
}

uint64_t letters_of(const Term *terms, long count) {
    uint64_t found = 0;
    for (long at = 0; at < count; at++)
        if (terms[at].kind == LETTER) found |= BIT(terms[at].letter);
    return found;
}
