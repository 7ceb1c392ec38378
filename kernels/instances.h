// Select the objects that are instances of some classes.
#pragma once

#include <Python.h>

#include <cstdint>

// A cache by the address of a class: whether the class is one of the requested ones, or derived from one.
struct KnownClasses {
  PyTypeObject *classes[1024] = {};
  bool answers[1024] = {};

  bool wanted(PyTypeObject *of, PyObject *kinds) {
    size_t slot = ((uintptr_t)of >> 4) % 1024;
    if (classes[slot] != of) {
      classes[slot] = of;
      answers[slot] = false;
      for (Py_ssize_t each = 0; each < PyTuple_Size(kinds); each++)
        answers[slot] |= (bool)PyType_IsSubtype(of, (PyTypeObject *)PyTuple_GetItem(kinds, each));
    }
    return answers[slot];
  }
};

static PyObject *instances(PyObject *, PyObject *const *given, Py_ssize_t count) {
  if (count != 2 || !PyList_Check(given[0]) || !PyTuple_Check(given[1]))
    return PyErr_Format(PyExc_TypeError, "a list of objects is needed, and a tuple of classes");
  for (Py_ssize_t each = 0; each < PyTuple_Size(given[1]); each++)
    if (!PyType_Check(PyTuple_GetItem(given[1], each)))
      return PyErr_Format(PyExc_TypeError, "%R is no class", PyTuple_GetItem(given[1], each));
  PyObject *found = PyList_New(0);
  if (!found) return nullptr;
  KnownClasses known;
  for (Py_ssize_t each = 0; each < PyList_Size(given[0]); each++) {
    PyObject *object = PyList_GetItem(given[0], each);
    if (known.wanted(Py_TYPE(object), given[1]) && PyList_Append(found, object)) {
      Py_DECREF(found);
      return nullptr;
    }
  }
  return found;
}
