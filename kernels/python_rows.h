// The types of the extension: `Rows` writes rows of statistics, `Observer` those of tensors in a training.
#pragma once

#include "kept_values.h"
#include "python_scans.h"

struct Rows {
  PyObject_HEAD
  Reals *reals;
  Counts *counts;
  int64_t *iterations, *codes, *exponents;  // of each row
  PyObject *shapes;                         // a list
  PyObject *types, *kinds;                  // of the tensors that are read in place; null if there are none
  long long ready, iteration;
  Team team;
};

// Squares of doubles beyond these limits leave the range of doubles.
static constexpr double LARGE = 0x1p480, SMALL = 0x1p-450;

static bool is_double(Kind kind) {
  switch (kind) {
    case FLOAT64: case INT64: case UINT64: case COMPLEX64: case COMPLEX128: return true;
    default: return false;
  }
}

static bool is_out_of_range(const Reals &reals) {
  double low = __builtin_fabs(reals.minimum), high = __builtin_fabs(reals.maximum);
  double largest = low > high ? low : high;
  return largest < __builtin_inf() && largest > 0 && (largest < SMALL || largest > LARGE);
}

static int rows_init(PyObject *self, PyObject *arguments, PyObject *) {
  Rows *rows = (Rows *)self;
  long long address[5];
  PyObject *shapes;
  if (!PyArg_ParseTuple(arguments, "LLLLLO", address, address + 1, address + 2, address + 3, address + 4, &shapes))
    return -1;
  if (!PyList_Check(shapes)) {
    PyErr_SetString(PyExc_TypeError, "shapes are a list");
    return -1;
  }
  rows->reals = (Reals *)address[0];
  rows->counts = (Counts *)address[1];
  rows->iterations = (int64_t *)address[2];
  rows->codes = (int64_t *)address[3];
  rows->exponents = (int64_t *)address[4];
  Py_INCREF(shapes);
  Py_XDECREF(rows->shapes);
  rows->shapes = shapes;
  Py_CLEAR(rows->types);
  Py_CLEAR(rows->kinds);
  rows->ready = rows->iteration = 0;
  rows->team = {};
  return 0;
}

static void rows_free(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  Py_XDECREF(((Rows *)self)->shapes);
  Py_XDECREF(((Rows *)self)->types);
  Py_XDECREF(((Rows *)self)->kinds);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static PyObject *rows_set_team(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  int64_t number[3];
  if (!read_integers(given, count, 3, number)) return nullptr;
  ((Rows *)self)->team = team_at(number);
  Py_RETURN_NONE;
}

static PyObject *rows_set_tensors(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  Rows *rows = (Rows *)self;
  if (count != 2 || !PyTuple_Check(given[0]) || !PyDict_Check(given[1]))
    return PyErr_Format(PyExc_TypeError, "a tuple of types is needed, and a dict of kinds by dtype");
  Py_INCREF(given[0]);
  Py_INCREF(given[1]);
  Py_XDECREF(rows->types);
  Py_XDECREF(rows->kinds);
  rows->types = given[0];
  rows->kinds = given[1];
  Py_RETURN_NONE;
}

// Return 1 if the row of a slot was written, 0 if more than a scan is needed, -1 after an exception.
static int write_row(Rows *rows, int64_t slot_id, const Elements &elements, const Axes &axes, PyObject *shape) {
  if (slot_id < 0 || slot_id >= rows->ready || elements.count < 0 || elements.count > MOST_PARTS * PART) return 0;
  Reals *reals = rows->reals + slot_id;
  Counts *counts = rows->counts + slot_id;
  if (axes.count || elements.count > ALONE) {
    static const Team NOBODY = {};
    scan_parts(elements.count > ALONE ? rows->team : NOBODY, elements, axes, reals, counts);
  } else {
    clear(reals, counts);
    chosen->scan(elements, reals, counts, nullptr, 0);
  }
  if (is_double(elements.kind) && is_out_of_range(*reals)) return 0;
  Py_INCREF(shape);
  if (PyList_SetItem(rows->shapes, slot_id, shape)) return -1;
  rows->codes[slot_id] = elements.kind;
  rows->exponents[slot_id] = 0;
  rows->iterations[slot_id] = rows->iteration;
  return 1;
}

static PyObject *rows_write(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  constexpr Py_ssize_t BEFORE_AXES = 6;
  int64_t number[5], strides[2 * MOST_AXES];
  Axes axes;
  if (count < BEFORE_AXES || (count - BEFORE_AXES) % 2)
    return PyErr_Format(PyExc_TypeError, "%zd arguments were given, 6 are needed, and 2 for each axis", count);
  if (count > BEFORE_AXES + 2 * MOST_AXES) Py_RETURN_FALSE;
  if (!read_integers(given, 5, 5, number) || !is_kind(number[1])) return nullptr;
  if (!read_integers(given + BEFORE_AXES, count - BEFORE_AXES, count - BEFORE_AXES, strides)) return nullptr;
  read_axes(strides, count - BEFORE_AXES, &axes);
  Elements elements = {(Kind)number[1], (const uint8_t *)number[2], number[3], number[4]};
  int written = write_row((Rows *)self, number[0], elements, axes, given[5]);
  return written < 0 ? nullptr : PyBool_FromLong(written);
}

// Names of the attributes and methods of PyTorch's tensors that are used.
static struct {
  PyObject *is_cpu, *is_contiguous, *is_neg, *dtype, *data_ptr, *numel, *shape, *stride, *storage_offset, *element_size,
      *untyped_storage, *nbytes, *version;
} names;

static bool make_names() {
  struct {
    PyObject **name;
    const char *text;
  } all[] = {
      {&names.is_cpu, "is_cpu"},
      {&names.is_contiguous, "is_contiguous"},
      {&names.is_neg, "is_neg"},
      {&names.dtype, "dtype"},
      {&names.data_ptr, "data_ptr"},
      {&names.numel, "numel"},
      {&names.shape, "shape"},
      {&names.stride, "stride"},
      {&names.storage_offset, "storage_offset"},
      {&names.element_size, "element_size"},
      {&names.untyped_storage, "untyped_storage"},
      {&names.nbytes, "nbytes"},
      {&names.version, "_version"},
  };
  for (auto &one : all)
    if (!(*one.name = PyUnicode_InternFromString(one.text))) return false;
  return true;
}

static PyObject *answer(PyObject *asked, PyObject *method) { return PyObject_CallMethodObjArgs(asked, method, nullptr); }

// Whether an object, whose reference is released, is the expected True or False.
static bool is_just(PyObject *found, PyObject *wanted) {
  Py_XDECREF(found);  // True and False outlive this
  return found == wanted;
}

static bool is_one_of(PyTypeObject *type, PyObject *types) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(types); i++)
    if ((PyObject *)type == PyTuple_GetItem(types, i)) return true;
  return false;
}

// Read an integer and release the reference; -1 for null.
static int64_t integer_of(PyObject *number) {
  if (!number) return -1;
  int64_t found = PyLong_AsLongLong(number);
  Py_DECREF(number);
  return found;
}

// Get length and stride of each axis, with adjacent contiguous axes merged. False if there are too many.
static bool find_axes(PyObject *shape, PyObject *strides, Axes *axes) {
  axes->count = 0;
  for (Py_ssize_t i = 0; i < PyTuple_Size(shape); i++) {
    int64_t length = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    int64_t stride = PyLong_AsLongLong(PyTuple_GetItem(strides, i));
    if (length == 1) continue;
    auto *last = axes->axis + axes->count - 1;
    if (axes->count && last->stride == length * stride) {
      *last = {last->length * length, stride};
    } else {
      if (axes->count == MOST_AXES) return false;
      axes->axis[axes->count++] = {length, stride};
    }
  }
  return true;
}

// The number of elements in memory from the first to the last of a tensor.
static int64_t extent_of(int64_t count, const Axes &axes) {
  if (!axes.count || !count) return count;
  int64_t extent = 1;
  for (int64_t axis = 0; axis < axes.count; axis++) extent += (axes.axis[axis].length - 1) * axes.axis[axis].stride;
  return extent;
}

// Whether the storage contains `extent` elements from the first of a tensor on; it may be released before the tensor.
static bool is_in_memory(PyObject *tensor, int64_t extent) {
  int64_t offset = integer_of(answer(tensor, names.storage_offset));
  int64_t item = integer_of(answer(tensor, names.element_size));
  PyObject *storage = answer(tensor, names.untyped_storage);
  int64_t bytes = storage ? integer_of(answer(storage, names.nbytes)) : -1;
  Py_XDECREF(storage);
  return !PyErr_Occurred() && (offset + extent) * item <= bytes;
}

// Get the address of the elements of a tensor, and its shape. False if the elements are not in memory, not stored
// unchanged, or unknown; an exception may be set then.
static bool find_elements(const Rows *rows, PyObject *tensor, Elements *elements, Axes *axes, PyObject **shape) {
  if (!rows->types || !is_one_of(Py_TYPE(tensor), rows->types) ||
      !is_just(PyObject_GetAttr(tensor, names.is_cpu), Py_True) || !is_just(answer(tensor, names.is_neg), Py_False))
    return false;
  PyObject *dtype = PyObject_GetAttr(tensor, names.dtype);
  PyObject *kind = dtype ? PyDict_GetItemWithError(rows->kinds, dtype) : nullptr;
  Py_XDECREF(dtype);
  int64_t code = kind ? PyLong_AsLongLong(kind) : -1;
  if (code < 0 || code >= KINDS) return false;
  elements->kind = (Kind)code;
  if (!(*shape = PyObject_GetAttr(tensor, names.shape))) return false;
  if (!is_just(answer(tensor, names.is_contiguous), Py_True)) {
    PyObject *strides = PyErr_Occurred() || is_double(elements->kind) ? nullptr : answer(tensor, names.stride);
    bool is_found = strides && PyTuple_Check(*shape) && PyTuple_Check(strides) &&
                    PyTuple_Size(*shape) == PyTuple_Size(strides) && find_axes(*shape, strides, axes) && axes->count;
    Py_XDECREF(strides);
    if (!is_found) return false;
  }
  int64_t address = integer_of(answer(tensor, names.data_ptr));
  elements->address = (const uint8_t *)address;
  elements->count = integer_of(answer(tensor, names.numel));
  // PyTorch's zero tensors without storage have no address.
  return !PyErr_Occurred() && address && is_in_memory(tensor, extent_of(elements->count, *axes));
}

// Write the row of a slot from one of PyTorch's own tensors whose elements are stored unchanged in this process; false
// for all others, without an exception.
static bool write_from(Rows *rows, int64_t slot_id, int64_t first_block, PyObject *tensor) {
  Elements elements = {FLOAT32, nullptr, 0, first_block};
  Axes axes;
  axes.count = 0;
  PyObject *shape = nullptr;
  bool is_written = find_elements(rows, tensor, &elements, &axes, &shape) &&
                    write_row(rows, slot_id, elements, axes, shape) > 0;
  Py_XDECREF(shape);
  // Sparse, nested and wrapped tensors raise.
  if (PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  return is_written;
}

static PyObject *rows_write_tensor(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  int64_t number[2];
  if (count != 3) return PyErr_Format(PyExc_TypeError, "%zd arguments were given, 3 are needed", count);
  if (!read_integers(given, 2, 2, number)) return nullptr;
  return PyBool_FromLong(write_from((Rows *)self, number[0], number[1], given[2]));
}

// Copy the row of a slot to that of another, optionally with another shape; false if there is no such row.
static PyObject *rows_copy(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  Rows *rows = (Rows *)self;
  int64_t number[2];
  if (count != 3) return PyErr_Format(PyExc_TypeError, "%zd arguments were given, 3 are needed", count);
  if (!read_integers(given, 2, 2, number)) return nullptr;
  int64_t source = number[0], target = number[1];
  if (source < 0 || target < 0 || source >= rows->ready || target >= rows->ready) Py_RETURN_FALSE;
  rows->reals[target] = rows->reals[source];
  rows->counts[target] = rows->counts[source];
  PyObject *shape = given[2] == Py_None ? PyList_GetItem(rows->shapes, source) : given[2];
  if (!shape) return nullptr;
  Py_INCREF(shape);
  if (PyList_SetItem(rows->shapes, target, shape)) return nullptr;
  rows->codes[target] = rows->codes[source];
  rows->exponents[target] = rows->exponents[source];
  rows->iterations[target] = rows->iteration;
  Py_RETURN_TRUE;
}

// ---- tensors of a training

// What is needed of a tensor: the numbers in `agents/core/slots.py`. Tests of the observer fail if they differ.
enum Need : int64_t { FINITE = 1, ROW = 2, VALUE = 4, HASH = 32 };

struct Observer {
  PyObject_HEAD
  PyObject *rows, *kept, *seen, *otherwise;
};

static int observer_visit(PyObject *self, visitproc visit, void *arg) {
  Observer *observer = (Observer *)self;
  Py_VISIT(observer->rows);
  Py_VISIT(observer->kept);
  Py_VISIT(observer->seen);
  Py_VISIT(observer->otherwise);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

static int observer_clear(PyObject *self) {
  Observer *observer = (Observer *)self;
  Py_CLEAR(observer->rows);
  Py_CLEAR(observer->kept);
  Py_CLEAR(observer->seen);
  Py_CLEAR(observer->otherwise);
  return 0;
}

static void observer_free(PyObject *self) { free_tracked(self, observer_clear); }

// Whether a tensor has no NaN and no infinite elements; false if unknown, without an exception.
static bool is_finite(const Rows *rows, PyObject *tensor) {
  Elements elements = {FLOAT32, nullptr, 0, -1};
  Axes axes;
  axes.count = 0;
  PyObject *shape = nullptr;
  bool is_known = find_elements(rows, tensor, &elements, &axes, &shape) && !axes.count;
  Py_XDECREF(shape);
  if (PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  return is_known && !find_non_finite(rows->team, elements.kind, elements.address, elements.count);
}

// Keep the value of a slot without records; false if that is not possible.
static bool keep_new(Kept *kept, PyObject *slot_id, PyObject *tensor) {
  PyObject *identity = PyLong_FromVoidPtr(tensor);
  if (!identity || !is_new(kept, slot_id, identity, tensor)) {
    Py_XDECREF(identity);
    return false;
  }
  PyObject *version = PyObject_GetAttr(tensor, names.version);
  if (!version && PyErr_ExceptionMatches(PyExc_RuntimeError)) {
    // Tensors created in inference mode have no version counter.
    PyErr_Clear();
    version = PyLong_FromLong(0);
  }
  bool is_done = version && keep(kept, slot_id, identity, version, tensor);
  Py_XDECREF(version);
  Py_DECREF(identity);
  return is_done;
}

// Whether everything needed of a tensor was computed and kept; if false, a part may have been.
static bool observe_here(const Observer *observer, PyObject *slot_id, int64_t number, int64_t need, PyObject *tensor) {
  Rows *rows = (Rows *)observer->rows;
  Kept *kept = (Kept *)observer->kept;
  if (need & VALUE) {
    if ((PyObject *)kept == Py_None || !rows->types || !is_one_of(Py_TYPE(tensor), rows->types)) return false;
    // First, because a tensor that cannot be kept here is passed on, and its row is written there.
    if (!keep_new(kept, slot_id, tensor)) return false;
  }
  if (need & ROW) return write_from(rows, number, need & HASH ? 0 : -1, tensor);
  return !(need & FINITE) || is_finite(rows, tensor);
}

// Handle a tensor if only its row, whether it is finite, or its value is needed, and if possible; all others are passed
// to `otherwise`.
static PyObject *observe(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  Observer *observer = (Observer *)self;
  if (count != 3 && count != 4) return PyErr_Format(PyExc_TypeError, "%zd arguments were given, 3 are needed", count);
  int64_t number = PyLong_AsLongLong(given[0]), need = PyLong_AsLongLong(given[2]);
  if (PyErr_Occurred()) return nullptr;
  if (count == 3 && (need & (ROW | FINITE | VALUE)) && observe_here(observer, given[0], number, need, given[1])) {
    if (PyList_Append(observer->seen, given[0])) return nullptr;
    Py_RETURN_NONE;
  }
  PyErr_Clear();
  return PyObject_CallFunctionObjArgs(observer->otherwise, given[0], given[1], given[2],
                                      count == 4 ? given[3] : nullptr, nullptr);
}

// Created with the module; only `Rows.observer` creates instances.
static PyTypeObject *observer_type = nullptr;

static PyObject *rows_observer(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  if (count != 3 || !PyList_Check(given[0]) || !PyCallable_Check(given[1]) ||
      (given[2] != Py_None && Py_TYPE(given[2]) != kept_type))
    return PyErr_Format(PyExc_TypeError, "a list is needed, a function, and the books of values or None");
  Observer *observer = (Observer *)PyType_GenericAlloc(observer_type, 0);
  if (!observer) return nullptr;
  Py_INCREF(self);
  Py_INCREF(given[0]);
  Py_INCREF(given[1]);
  Py_INCREF(given[2]);
  observer->rows = self;
  observer->kept = given[2];
  observer->seen = given[0];
  observer->otherwise = given[1];
  return (PyObject *)observer;
}

// ---- methods and types

static PyMethodDef ROWS_METHODS[] = {
    {"write", (PyCFunction)(void (*)(void))rows_write, METH_FASTCALL, nullptr},
    {"write_tensor", (PyCFunction)(void (*)(void))rows_write_tensor, METH_FASTCALL, nullptr},
    {"set_tensors", (PyCFunction)(void (*)(void))rows_set_tensors, METH_FASTCALL, nullptr},
    {"copy", (PyCFunction)(void (*)(void))rows_copy, METH_FASTCALL, nullptr},
    {"observer", (PyCFunction)(void (*)(void))rows_observer, METH_FASTCALL, nullptr},
    {"set_team", (PyCFunction)(void (*)(void))rows_set_team, METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

static PyMemberDef ROWS_MEMBERS[] = {
    {"ready", T_LONGLONG, offsetof(Rows, ready), 0, nullptr},
    {"iteration", T_LONGLONG, offsetof(Rows, iteration), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

static PyType_Slot ROWS_SLOTS[] = {
    {Py_tp_init, (void *)rows_init}, {Py_tp_dealloc, (void *)rows_free}, {Py_tp_methods, ROWS_METHODS},
    {Py_tp_members, ROWS_MEMBERS},   {Py_tp_new, (void *)PyType_GenericNew}, {0, nullptr},
};

static PyType_Spec ROWS = {"tensight.tensors._kernels.Rows", sizeof(Rows), 0, Py_TPFLAGS_DEFAULT, ROWS_SLOTS};

static PyMethodDef OBSERVER_METHODS[] = {
    {"observe", (PyCFunction)(void (*)(void))observe, METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

static PyType_Slot OBSERVER_SLOTS[] = {
    {Py_tp_dealloc, (void *)observer_free},
    {Py_tp_traverse, (void *)observer_visit},
    {Py_tp_clear, (void *)observer_clear},
    {Py_tp_methods, OBSERVER_METHODS},
    {0, nullptr},
};

static PyType_Spec OBSERVER = {"tensight.tensors._kernels.Observer", sizeof(Observer), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, OBSERVER_SLOTS};
