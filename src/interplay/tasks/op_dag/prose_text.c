// The text of prose problems, as op_dag.prose renders it.

#include <stdarg.h>

#include "op_dag.h"

typedef struct {
    char *at;
    long size, room;
} Out;

static void put(Out *out, Text text) {
    if (out->size + text.size > out->room) {
        const long room = 2 * (out->size + text.size) + 2048;
        char *moved = realloc(out->at, room);
        if (!moved) {
            unsure = 1;
            return;
        }
        out->at = moved, out->room = room;
    }
    memcpy(out->at + out->size, text.at, text.size);
    out->size += text.size;
}

static void put_number(Out *out, long long number) {
    char digits[24];
    long at = sizeof digits;
    unsigned long long size = number < 0 ? -(unsigned long long)number : (unsigned long long)number;
    do digits[--at] = '0' + size % 10;
    while (size /= 10);
    if (number < 0) digits[--at] = '-';
    put(out, (Text){digits + at, (long)sizeof digits - at});
}

static void print(Out *out, const char *format, ...);

// A linear form: `3`, `x`, `2*x + 4`, `x - 1`, `4 - 2*x`, `-x`.
static void put_form(Out *out, Form form) {
    const long long size = form.slope < 0 ? -form.slope : form.slope;
    if (!form.slope) {
        put_number(out, form.rest);
        return;
    }
    if (form.slope < 0 && form.rest > 0) print(out, "%d - ", form.rest);
    if (form.slope < 0 && form.rest <= 0) print(out, "-");
    if (size != 1) print(out, "%d*", size);
    print(out, "x");
    if (form.rest < 0) print(out, " - %d", -form.rest);
    if (form.slope > 0 && form.rest > 0) print(out, " + %d", form.rest);
}

// %t: a Text, %d: a long long, %c: a character, %f: a Form.
static void print(Out *out, const char *format, ...) {
    va_list given;
    va_start(given, format);
    while (*format) {
        const char *end = format;
        while (*end && *end != '%') end++;
        if (end > format) put(out, (Text){format, end - format});
        if (!*end) break;
        if (end[1] == 't') put(out, va_arg(given, Text));
        if (end[1] == 'd') put_number(out, va_arg(given, long long));
        if (end[1] == 'f') put_form(out, va_arg(given, Form));
        if (end[1] == 'c') {
            const char c = va_arg(given, int);
            put(out, (Text){&c, 1});
        }
        format = end + 2;
    }
    va_end(given);
}

// `number of adult owl in Pine Ridge`
static void put_subject(Out *out, const Node *node) {
    print(out, node->total ? "the %t in %t" : "the number of %t in %t", node->name, node->place);
}

// The sentence of a definition.
static void put_definition(Out *out, const Problem *problem, const Node *node) {
    print(out, node->total ? "The %t in %t" : "The number of %t in %t", node->name, node->place);
    if (!node->count && !node->has_constant) {
        print(out, " exists, and its number is greater than 0.");
        return;
    }
    print(out, " equals ");
    if (node->has_constant) print(out, "%d", node->constant);
    if (node->has_constant && node->count) print(out, node->operator == '+' ? " plus " : " times ");
    if (node->count > 1) print(out, node->count == 2 && node->minus ? "the difference between " : "the sum of ");
    for (int at = 0; at < node->count; at++) {
        if (at) print(out, node->count == 2 ? " and " : at == node->count - 1 ? ", and " : ", ");
        put_subject(out, problem->nodes + node->parents[at]);
    }
    print(out, ".");
}

static void put_prompt(Out *out, const Problem *problem, PyObject *order, Text note) {
    const Node *goal = problem->nodes + problem->necessary - 1, *asked = problem->reverse ? problem->nodes : goal;
    const ssize_t count = PyTuple_Size(order);
    print(out, "<question> %t", note);
    for (ssize_t at = 0; at < count; at++) {
        const long long place = PyLong_AsLongLong(PyTuple_GetItem(order, at));
        if (place >= problem->count) unsure = 1;
        if (unsure) return;
        if (place < 0)
            print(out, goal->total ? "The %t in %t equals %d. " : "The number of %t in %t equals %d. ", goal->name, goal->place,
                  problem->values[problem->necessary - 1]);
        else
            put_definition(out, problem, problem->nodes + place), print(out, " ");
    }
    print(out, asked->total ? "What is the %t in %t?" : "How many %t does %t have?", asked->name, asked->place);
    print(out, " </question> <solution>");
}

// The parts of the gold solution: the letters of the nodes so far, and those that are free.
typedef struct {
    const Problem *problem;
    char letters[MOST];
    Text free;
} Solution;

static char next_letter(Solution *solution) {
    if (!solution->free.size) {
        unsure = 1;
        return '?';
    }
    const char found = solution->free.at[0];
    solution->free = after(solution->free, 1);
    return found;
}

// The clauses of a node with parents; `letter` is its own.
static void put_clauses(Out *out, Solution *solution, const Node *node, char letter) {
    const Problem *problem = solution->problem;
    const int brackets = node->minus && problem->reverse;
    const char sign = node->minus ? '-' : '+';
    char total = solution->letters[node->parents[0]];
    Form form = problem->forms[node->parents[0]];
    for (int at = 1; at < node->count; at++) {
        const int parent = node->parents[at], ends = !node->has_constant && at == node->count - 1;
        const Form other = problem->forms[parent];
        const char own = ends ? letter : next_letter(solution);
        print(out, ends ? "so %c = %c %c %c = " : "%c = %c %c %c = ", own, total, sign, solution->letters[parent]);
        print(out, brackets ? "(%f) %c (%f)" : "%f %c %f", form, sign, other);
        if (ends) return;
        form = node->minus ? (Form){minus(form.slope, other.slope), minus(form.rest, other.rest)}
                           : (Form){plus(form.slope, other.slope), plus(form.rest, other.rest)};
        print(out, " = %f; ", form);
        total = own;
    }
    if (node->count == 1 && !node->has_constant) {
        print(out, "so %c = %c", letter, total);
        return;
    }
    if (node->count == 1) {
        const char own = next_letter(solution);
        print(out, "%c = %c = %f; ", own, total, form);
        total = own;
    }
    print(out, "so %c = %d %c %c = ", letter, node->constant, node->operator, total);
    print(out, problem->reverse && node->operator == '*' ? "(%d) %c (%f)" : "%d %c %f", node->constant, node->operator, form);
}

static void put_equation(Out *out, char letter, Form form, long long value) {
    const long long rest = minus(value, form.rest);
    if (!form.slope) {
        unsure = 1;
        return;
    }
    const long long root = rest / form.slope - (rest % form.slope && (rest < 0) != (form.slope < 0));
    print(out, " We know %c = %d, so we have %f = %d and we solve it through the following steps: ", letter, value, form, value);
    print(out, "Simplifying the equation: %f = %d. ", form, value);
    print(out, "Move all terms to one side: %f = 0. ", (Form){form.slope, -rest});
    print(out, "Isolate the term with x: %d*x = %d. ", form.slope, rest);
    print(out, "Divide both sides by %d: x = %d / %d. Solution: x = %d.", form.slope, rest, form.slope, root);
}

static void put_solution(Out *out, const Problem *problem, Text letters) {
    Solution solution = {.problem = problem, .free = letters};
    if (problem->reverse) print(out, " The question is difficult, so we use equations to solve it.");
    for (int place = 0; place < problem->necessary && !unsure; place++) {
        const Node *node = problem->nodes + place;
        // Letters of intermediate results come before the node's own.
        const int inner = node->count == 1 ? node->has_constant : node->count ? node->count - 2 + node->has_constant : 0;
        for (int at = 0; at < node->count; at++) unsure |= node->parents[at] >= place;
        unsure |= inner >= solution.free.size || (node->has_constant && node->count && !node->operator);
        if (unsure) return;
        const char letter = node->count || node->has_constant ? solution.free.at[inner] : 'x';
        print(out, " Define %t in %t as %c; ", node->name, node->place, letter);
        if (node->count) {
            put_clauses(out, &solution, node, letter);
            print(out, " = %f", problem->forms[place]);
        } else if (node->has_constant) {
            print(out, "so %c = %d", letter, node->constant);
        } else {
            print(out, "we don't know its value yet but will find it out later");
        }
        print(out, ".");
        if (node->count || node->has_constant) next_letter(&solution);
        solution.letters[place] = letter;
    }
    const int goal = problem->necessary - 1;
    if (problem->reverse) put_equation(out, solution.letters[goal], problem->forms[goal], problem->values[goal]);
    print(out, " </solution> <answer> %d </answer>", problem->values[problem->reverse ? 0 : goal]);
}

// (prompt, solution) of a problem, whose prompt begins with a note; None where Python has to render it.
PyObject *render_prose(PyObject *from, PyObject *note) {
    Problem problem;
    Text begins, letters;
    Out prompt = {NULL, 0, 0}, solution = {NULL, 0, 0};
    PyObject *found = NULL;
    if (!read_problem(from, 1, &problem) || !read_text(note, &begins) || !read_text(PyTuple_GetItem(from, 7), &letters))
        return unknown();
    put_prompt(&prompt, &problem, PyTuple_GetItem(from, 6), begins);
    put_solution(&solution, &problem, letters);
    if (!unsure)
        found = Py_BuildValue("(NN)", PyUnicode_FromStringAndSize(prompt.at, prompt.size),
                              PyUnicode_FromStringAndSize(solution.at, solution.size));
    free(prompt.at), free(solution.at);
    return found ? found : unknown();
}
