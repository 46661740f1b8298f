// What the compiled part of op_dag shares: views of text, problems read from their tuples, and expressions of solutions.
//
// The Python modules of this folder are the reference: every function here finds what the function of the same purpose finds
// there, or says that it does not know (`unsure`, None for the caller), and Python decides. So rare inputs need no code here: blanks
// and words beyond ASCII, integers beyond 64 bits, problems of more than MOST nodes.
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

// Python's stable ABI (PEP 384), declared here so that no headers of Python need be installed.
typedef struct PyObject PyObject;
PyObject *PyTuple_GetItem(PyObject *, ssize_t);
ssize_t PyTuple_Size(PyObject *);
long long PyLong_AsLongLong(PyObject *);
const char *PyUnicode_AsUTF8AndSize(PyObject *, ssize_t *);
PyObject *PyUnicode_FromStringAndSize(const char *, ssize_t);
PyObject *PyErr_Occurred(void);
void PyErr_Clear(void);
PyObject *Py_BuildValue(const char *, ...);
extern PyObject _Py_NoneStruct;

#define MOST 62          // nodes of a problem: a set of nodes is 64 bits
#define LARGEST 1000000000000000LL  // values of a problem; larger ones are left to Python
#define LONGEST 65536    // characters of a completion

// Set where 64 bits do not suffice; the caller then answers None. Python's lock is held throughout.
extern int unsure;

static inline long long plus(long long a, long long b) {
    long long sum;
    if (__builtin_add_overflow(a, b, &sum)) unsure = 1;
    return sum;
}
static inline long long minus(long long a, long long b) {
    long long difference;
    if (__builtin_sub_overflow(a, b, &difference)) unsure = 1;
    return difference;
}
static inline long long times(long long a, long long b) {
    long long product;
    if (__builtin_mul_overflow(a, b, &product)) unsure = 1;
    return product;
}

// Text that belongs to the caller.
typedef struct {
    const char *at;
    long size;
} Text;

#define TEXT(literal) ((Text){literal, sizeof(literal) - 1})

static inline int is_digit(char c) { return c >= '0' && c <= '9'; }
static inline int is_letter(char c) { return ((c | 32) >= 'a') & ((c | 32) <= 'z'); }
static inline int is_sign(char c) { return c == '-' || c == '+' || c == '*'; }
// What str.strip strips.
static inline int is_blank(char c) { return (c >= 9 && c <= 13) || (c >= 28 && c <= 32); }
static inline int equal(Text a, Text b) { return a.size == b.size && !memcmp(a.at, b.at, a.size); }
static inline int starts(Text text, Text head) { return text.size >= head.size && !memcmp(text.at, head.at, head.size); }
static inline Text after(Text text, long count) { return (Text){text.at + count, text.size - count}; }
static inline Text before(Text text, long count) { return (Text){text.at, count}; }
// The place of a letter: a-z, then A-Z.
static inline int letter_of(char c) { return c >= 'a' ? c - 'a' : c - 'A' + 26; }
#define BIT(place) (1ULL << (place))

// Without blanks at its ends; unsure where it begins or ends beyond ASCII, since that may be a blank.
Text stripped(Text text);
long find(Text text, Text what);
long find_character(Text text, char what);

// A linear form: slope times the unknown plus rest.
typedef struct {
    long long slope, rest;
} Form;

static inline int same(Form a, Form b) { return a.slope == b.slope && a.rest == b.rest; }

typedef struct {
    Text name, place;  // `place`: of prose only
    int total, minus;
    char operator;  // 0: none
    int has_constant;
    long long constant;
    int count;
    unsigned char parents[MOST];
    uint64_t reads;  // the parents as bits
} Node;

typedef struct {
    int prose, reverse;
    long long modulus;  // 0: none
    int count, necessary;
    Node nodes[MOST];
    long long values[MOST];
    Form forms[MOST];
} Problem;

// Read a problem of either surface; 0 where Python has to.
int read_problem(PyObject *from, int prose, Problem *out);
// The text of a string in UTF-8; 0 where it is too long.
int read_text(PyObject *from, Text *out);

// None, for cases that are left to Python.
PyObject *unknown(void);

// Bits of a node, as in op_dag.dag.
enum { VALUED = 1, NAMED = 2, BAD_VALUE = 4, BAD_PARENTS = 8, BAD_OPERATOR = 16, STATED = 128, UNWORKED = 256 };
enum { WITH_OPERATOR = 1, WITH_ARITHMETIC = 2 };  // what a verdict asks for

// op_dag.dag.Counts of a completion; None where this is unsure.
PyObject *counted(const Problem *problem, const int *state, int asked, int extra, int readable, const Text *answer);

// Expressions.

enum { NUMBER, LETTER, BRACKET };

typedef struct {
    char sign, kind;
    int count;  // of the terms within a bracket, which follow it
    int letter;  // of a number: whether it is a multiple of the unknown
    Form form;   // of a number
} Term;

// The terms of an expression, terms within brackets behind these; 0 where the text is none. `terms`: room for one more than the
// text has characters.
long parse_expression(Text text, Term *terms);
// The form of an expression, whose `known` letters are the unknown; 0 where it has none.
int evaluate(const Term *terms, long count, uint64_t known, long long modulus, Form *out);
// The operands that are numbers, brackets of numbers included, sorted; their number. `out`: room for `count`.
long number_operands(const Term *terms, long count, long long modulus, Form *out);
// Bits of the operators: 1 for +, 2 for -, 4 for *.
int operators_of(const Term *terms, long count);
uint64_t letters_of(const Term *terms, long count);
long long residue(long long value, long long modulus);
void sort_forms(Form *forms, long count);
