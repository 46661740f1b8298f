// The verdict on a completion of a terse problem, as op_dag.terse_verifier finds it; steps with names that are no nodes are left to
// Python.

#include "op_dag.h"

#define STEP 100  // characters of a step; Python knows gold steps of any length

typedef struct {
    Text text;
    const Term *terms;
    long count;
    uint64_t letters;
    int known, result;
    Form form;
} Part;

typedef struct {
    const Problem *problem;
    int places[52];  // of letters, or -1
    Term terms[2 * STEP + 2];
    Part parts[STEP + 1];
    int count;
    int name;  // its letter, or -1
    uint64_t letters;
} Step;

// Whether an expression is a number or a linear form.
static int is_result(const Part *part) {
    const Term *terms = part->terms;
    if (part->count > 2 || terms[0].kind != NUMBER) return 0;
    return part->count == 1 || (terms[1].kind == NUMBER && terms[1].sign != '*' && terms[0].letter != terms[1].letter);
}

// Whether all numbers of a text are residues.
static int has_residues(Text text, long long modulus) {
    long long number = 0;
    for (long at = 0; at < text.size; at++) {
        if (text.at[at] == '-') return 0;
        number = is_digit(text.at[at]) ? number * 10 + (text.at[at] - '0') : 0;
        if (number >= modulus) return 0;
    }
    return 1;
}

// Parse a step; 0 where it is none.
static int parse_step(Step *step, Text text) {
    Term *terms = step->terms;
    step->count = 0, step->letters = 0, step->name = -1;
    if (is_letter(text.at[0])) {
        step->name = letter_of(text.at[0]);
        text = after(text, text.size > 1 && text.at[1] == '=' ? 2 : 1);
    }
    for (int ends = 0; !ends;) {
        const long end = find_character(text, '=');
        Part *part = step->parts + step->count++;
        ends = end < 0;
        part->text = ends ? text : before(text, end);
        text = ends ? text : after(text, end + 1);
        part->terms = terms;
        part->count = parse_expression(part->text, terms);
        if (!part->count) return 0;
        part->letters = letters_of(terms, part->count);
        part->known = evaluate(terms, part->count, 0, step->problem->modulus, &part->form);
        part->result = is_result(part);
        step->letters |= part->letters;
        terms += part->count;
    }
    return 1;
}

static const Part *first_named(const Step *step) {
    for (int at = 0; at < step->count; at++)
        if (step->parts[at].letters) return step->parts + at;
    return NULL;
}

// The first expression of numbers, except the value, with two operands or more; they are written to `operands`.
static const Part *first_worked(const Step *step, Form *operands, long *count) {
    const Part *last = step->parts + step->count - 1;
    for (const Part *part = step->parts; part <= last; part++) {
        if (part->letters || (last->result && equal(part->text, last->text))) continue;
        *count = number_operands(part->terms, part->count, step->problem->modulus, operands);
        if (*count > 1) return part;
    }
    return NULL;
}

// Whether all expressions of numbers are equal, and with a modulus the value is written as a residue.
static int is_sound(const Step *step) {
    const Part *last = step->parts + step->count - 1, *plain = NULL;
    for (const Part *part = step->parts; part <= last; part++) {
        if (part->letters) continue;
        if (!plain) plain = part;
        if (!part->known || !same(part->form, plain->form)) return 0;
    }
    return !last->result || !step->problem->modulus || has_residues(last->text, step->problem->modulus);
}

static int operator_bit(char operator) { return operator == '+' ? 1 : operator == '-' ? 2 : operator == '*' ? 4 : 0; }

// The bits of the definition of a node: its letters, numbers and operators.
static int named_bits(const Step *step, const Node *node, const Part *named) {
    const Problem *problem = step->problem;
    Form operands[STEP + 1];
    uint64_t parents = 0;
    int letters = 0, in_order = 1, bits = NAMED;
    for (int at = 0; at < node->count; at++) parents |= BIT(letter_of(problem->nodes[node->parents[at]].name.at[0]));
    for (long at = 0; at < named->count; at++) {
        if (named->terms[at].kind != LETTER) continue;
        if (letters >= node->count || step->places[named->terms[at].letter] != node->parents[letters]) in_order = 0;
        letters++;
    }
    const long count = number_operands(named->terms, named->count, problem->modulus, operands);
    const int constants = count == node->has_constant && (!count || same(operands[0], (Form){0, node->constant}));
    if (step->letters != parents)
        bits |= BAD_PARENTS;
    else if (!constants || letters != node->count)
        bits |= BAD_VALUE;
    const int differs = node->operator == '-' && (!in_order || letters != node->count);
    return operators_of(named->terms, named->count) != operator_bit(node->operator) || differs ? bits | BAD_OPERATOR : bits;
}

// The bits of the numbers that are substituted into the definition of a node, which a value of it needs.
static int worked_bits(const Step *step, const Node *node, int valued) {
    Form operands[STEP + 1], expected[MOST + 1];
    long count = 0, size = 0;
    const Part *worked = first_worked(step, operands, &count);
    if (!worked) {  // a form of two terms may be value and working at once
        const Form value = step->parts[step->count - 1].form;
        int numbers = 0;
        for (int at = 0; at < step->count; at++) numbers += !step->parts[at].letters;
        return valued && node->operator && !(numbers > 1 && value.slope && value.rest) ? UNWORKED : 0;
    }
    for (int at = 0; at < node->count; at++) expected[size++] = step->problem->forms[node->parents[at]];
    if (node->has_constant) expected[size++] = (Form){0, node->constant};
    sort_forms(expected, size);
    int bits = count == size ? 0 : BAD_VALUE;
    for (long at = 0; at < size && !bits; at++)
        if (!same(operands[at], expected[at])) bits = BAD_VALUE;
    return operators_of(worked->terms, worked->count) != operator_bit(node->operator) ? bits | BAD_OPERATOR : bits;
}

static int node_bits(const Step *step, int place) {
    const Part *last = step->parts + step->count - 1, *named = first_named(step);
    const Node *node = step->problem->nodes + place;
    const int sound = is_sound(step);
    int bits = sound ? 0 : BAD_VALUE;
    if (last->result && last->known) bits |= same(last->form, step->problem->forms[place]) ? VALUED : VALUED | BAD_VALUE;
    if (named) bits |= named_bits(step, node, named);
    return bits | worked_bits(step, node, bits & VALUED);
}

// Whether an equation holds at the true value of the unknown; -1 where the step is none. `stated`: whether it is the goal's form
// and the value that is given for it.
static int equation_holds(const Step *step, int *stated) {
    const Problem *problem = step->problem;
    const Form given = {0, problem->values[problem->necessary - 1]};
    int form = 0, number = 0;
    if (!problem->reverse || step->letters || step->count < 2) return -1;
    long long value = 0;
    int holds = 1;
    for (int at = 0; at < step->count; at++) {
        const Part *part = step->parts + at;
        if (!part->known) return -1;
        form |= same(part->form, problem->forms[problem->necessary - 1]), number |= same(part->form, given);
        const long long side = residue(plus(times(part->form.slope, problem->values[0]), part->form.rest), problem->modulus);
        if (at && side != value) holds = 0;
        value = side;
    }
    *stated = form && number;
    return holds;
}

// The letters of all nodes; 0 where a name is none.
static int set_places(Step *step, uint64_t *known) {
    const Problem *problem = step->problem;
    *known = 0;
    for (int letter = 0; letter < 52; letter++) step->places[letter] = -1;
    for (int place = 0; place < problem->count; place++) {
        const Text name = problem->nodes[place].name;
        if (name.size != 1 || !is_letter(name.at[0])) return 0;
        step->places[letter_of(name.at[0])] = place;
        *known |= BIT(letter_of(name.at[0]));
    }
    return 1;
}

// The counts of a completion (`counted`).
PyObject *judge_terse(PyObject *from, PyObject *completion, int asked) {
    Problem problem;
    Step step;
    Text body, answer;
    int state[MOST] = {0}, readable = 1;
    uint64_t valued = 0, extras = 0, known;
    step.problem = &problem;
    if (!read_problem(from, 0, &problem) || !read_text(completion, &body) || !set_places(&step, &known)) return unknown();
    const long mark = find_character(body, '#');
    if (mark >= 0) answer = stripped(after(body, mark + 1)), body = before(body, mark);
    for (long start = 0, end = 0; end <= body.size && !unsure; start = ++end) {
        while (end < body.size && body.at[end] != ',' && body.at[end] != '|') end++;
        const Text text = before(after(body, start), end - start);
        if (!text.size) continue;
        if (text.size > STEP) return unknown();
        if (!parse_step(&step, text)) {
            readable = 0;
        } else if ((step.letters | (step.name < 0 ? 0 : BIT(step.name))) & ~known) {
            return unknown();
        } else if (step.name < 0) {
            int stated = 0;
            const int holds = equation_holds(&step, &stated);
            if (holds < 0) readable = 0;
            if (!holds) state[problem.necessary - 1] |= BAD_VALUE;
            if (holds > 0 && stated) state[problem.necessary - 1] |= STATED;
        } else if (step.places[step.name] >= problem.necessary) {
            extras |= BIT(step.places[step.name]);
        } else {
            const int place = step.places[step.name];
            int bits = node_bits(&step, place);
            if (bits & VALUED) {
                if (problem.nodes[place].reads & ~valued) bits |= BAD_PARENTS;
                valued |= BIT(place);
            }
            state[place] |= bits;
        }
    }
    return counted(&problem, state, asked, __builtin_popcountll(extras), readable, mark < 0 ? NULL : &answer);
}
