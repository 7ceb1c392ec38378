import { expect, test } from 'vitest'
import type { TreeEntry, TreePage } from '~/api/types'
import {
  entryKey,
  graphOf,
  openScopes,
  pageKey,
  PAGE,
  rowKey,
  treeRows as rowsOfTree,
  type PageState,
  type Row,
  type TreeShape,
} from './rows'

function treeRows(shape: TreeShape): (Row | undefined)[] {
  const rows = rowsOfTree(shape)
  return Array.from({ length: rows.length }, (_, index) => rows.at(index))
}

const entry = (path: string, kind: TreeEntry['kind'], change: Partial<TreeEntry> = {}): TreeEntry => ({
  path,
  label: path.split('/').at(-1) ?? '',
  kind,
  type: '',
  roles: [],
  children: 0,
  nodes: 1,
  dynamic_shape: false,
  hits: 0,
  graph: 'g',
  graphs: [],
  apart: false,
  ...change,
})

function loaded(
  scope: string,
  entries: TreeEntry[],
  total = entries.length,
  number = 0,
): [string, PageState] {
  const page: TreePage = { rank: 0, graph: 'g', scope, total, offset: number * PAGE, entries }
  return [pageKey({ graph: 'g', scope, number }), { page, isStale: false }]
}

const shape = (change: Partial<TreeShape>): TreeShape => ({
  rank: 0,
  graph: 'g',
  open: new Set([rowKey('g', '', true)]),
  pages: new Map(),
  ...change,
})

const root = loaded('', [entry('net', 'scope', { children: 2 }), entry('@parameters', 'parameters')])
const isOpen = (...paths: string[]) => new Set(['', ...paths].map((path) => rowKey('g', path, true)))

test('an open scope has its final number of rows before they are loaded', () => {
  const rows = treeRows(shape({ open: isOpen('net'), pages: new Map([root]) }))
  expect(rows.map((row) => [row?.kind, row?.depth, row?.parent])).toEqual([
    ['entry', 0, -1],
    ['loading', 1, 0],
    ['loading', 1, 0],
    ['entry', 0, -1],
  ])
})

test('a scope and a node of one name are two rows', () => {
  const both = loaded('', [entry('add', 'scope', { children: 1 }), entry('add', 'operator')])
  const rows = treeRows(shape({ pages: new Map([both]) }))
  expect(new Set(rows.map((row) => row?.key)).size).toBe(2)
  expect(rows.map((row) => row?.kind === 'entry' && row.isOpen)).toEqual([false, null])
})

test('pages of a long scope are in order, whichever is loaded first', () => {
  const total = PAGE + 2
  const last = loaded('net', [entry('net/y', 'operator'), entry('net/z', 'operator')], total, 1)
  const wide = loaded('', [entry('net', 'scope', { children: total })])
  const rows = treeRows(shape({ open: isOpen('net'), pages: new Map([wide, last]) }))
  expect(rows).toHaveLength(1 + total)
  expect(rows.at(-1)).toMatchObject({ kind: 'entry', key: 'g\nnet/z', nth: total, siblings: total })
  expect(rows[1]).toMatchObject({ kind: 'loading', page: { scope: 'net', number: 0 } })
})

test('a page that failed to load says so, and names the page to retry', () => {
  const failed: [string, PageState] = [
    pageKey({ graph: 'g', scope: 'net', number: 0 }),
    { message: 'the debug server does not answer', isStale: false },
  ]
  const rows = treeRows(shape({ open: isOpen('net'), pages: new Map([root, failed]) }))
  expect(rows[1]).toMatchObject({ kind: 'failed', message: 'the debug server does not answer', depth: 1 })
})

test('rows that not all variants have are marked where the difference begins', () => {
  const [h] = [['h', 'i']]
  const inner = loaded('net', [
    entry('net/a', 'operator', { graphs: h }),
    entry('net/b', 'operator', { graphs: ['h'] }),
  ])
  const outer = loaded('', [entry('net', 'scope', { children: 2, graphs: h }), entry('x', 'operator')])
  const rows = treeRows(shape({ open: isOpen('net'), pages: new Map([outer, inner]) }))
  expect(rows.map((row) => row?.kind === 'entry' && row.marked)).toEqual([['h', 'i'], [], ['h'], []])
})

test('several nodes of one name have different keys, and are chosen with their graph', () => {
  const both = ['f', 'g'].map((graph) => entry('add', 'operator', { apart: true, graph, graphs: [graph] }))
  expect(new Set(both.map((node) => entryKey('', node))).size).toBe(2)
  expect(both.map((node) => graphOf('', node))).toEqual(['f', 'g'])
  expect(entryKey('f', both[0] ?? entry('', 'operator'))).toBe(rowKey('f', 'add', false))
  expect(graphOf('', entry('add', 'operator'))).toBe('')
})

test('a scope is loaded only while all scopes around it are open', () => {
  const open = new Set([...isOpen('a', 'a/b', 'c/d'), rowKey('gone', '', true)])
  expect(openScopes(open, 'g').map((page) => page.scope)).toEqual(['', 'a', 'a/b'])
})
