import { expect, test } from 'vitest'
import type { GraphRecord, TreeEntry, TreePage } from '~/api/types'
import {
  openScopes,
  pageKey,
  PAGE,
  rowKey,
  treeRows as rowsOfTree,
  type KnownPage,
  type Row,
  type TreeShape,
} from './rows'

function treeRows(shape: TreeShape): (Row | undefined)[] {
  const rows = rowsOfTree(shape)
  return Array.from({ length: rows.length }, (_, index) => rows.at(index))
}

const graph: GraphRecord = {
  rank: 0,
  name: 'g',
  graph_id: 0,
  root_id: 0,
  nodes: 3,
  operators: 2,
  parameters: 1,
  problems: [],
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
  ...change,
})

function known(scope: string, entries: TreeEntry[], total = entries.length, number = 0): [string, KnownPage] {
  const page: TreePage = { rank: 0, graph: 'g', scope, total, offset: number * PAGE, entries }
  return [pageKey({ graph: 'g', scope, number }), { page, isStale: false }]
}

const shape = (change: Partial<TreeShape>): TreeShape => ({
  rank: 0,
  graphs: [graph],
  hasGraphRows: false,
  open: new Set([rowKey('g', '', true)]),
  known: new Map(),
  ...change,
})

const root = known('', [entry('net', 'scope', { children: 2 }), entry('@parameters', 'parameters')])
const isOpen = (...paths: string[]) => new Set(['', ...paths].map((path) => rowKey('g', path, true)))

test('an open scope has as many rows as it will have, before they are there', () => {
  const rows = treeRows(shape({ open: isOpen('net'), known: new Map([root]) }))
  expect(rows.map((row) => [row?.kind, row?.depth, row?.parent])).toEqual([
    ['entry', 0, -1],
    ['loading', 1, 0],
    ['loading', 1, 0],
    ['entry', 0, -1],
  ])
})

test('a scope and a node of one name are two rows', () => {
  const both = known('', [entry('add', 'scope', { children: 1 }), entry('add', 'operator')])
  const rows = treeRows(shape({ known: new Map([both]) }))
  expect(new Set(rows.map((row) => row?.key)).size).toBe(2)
  expect(rows.map((row) => row?.kind === 'entry' && row.isOpen)).toEqual([false, null])
})

test('pages of a long scope stand where they belong, whichever comes first', () => {
  const total = PAGE + 2
  const last = known('net', [entry('net/y', 'operator'), entry('net/z', 'operator')], total, 1)
  const wide = known('', [entry('net', 'scope', { children: total })])
  const rows = treeRows(shape({ open: isOpen('net'), known: new Map([wide, last]) }))
  expect(rows).toHaveLength(1 + total)
  expect(rows.at(-1)).toMatchObject({ kind: 'entry', key: 'g\nnet/z', nth: total, siblings: total })
  expect(rows[1]).toMatchObject({ kind: 'loading', page: { scope: 'net', number: 0 } })
})

test('what could not be read says so, with the page to read again', () => {
  const failed: [string, KnownPage] = [
    pageKey({ graph: 'g', scope: 'net', number: 0 }),
    { message: 'the debug server does not answer', isStale: false },
  ]
  const rows = treeRows(shape({ open: isOpen('net'), known: new Map([root, failed]) }))
  expect(rows[1]).toMatchObject({ kind: 'failed', message: 'the debug server does not answer', depth: 1 })
})

test('of several graphs each has a row, with the hits of its scopes', () => {
  const hit = known('', [entry('net', 'scope', { hits: 2 }), entry('x', 'operator', { hits: 1 })])
  const graphs = [graph, { ...graph, name: 'h' }]
  const rows = treeRows(shape({ graphs, hasGraphRows: true, open: new Set(), known: new Map([hit]) }))
  expect(rows.map((row) => row?.kind === 'entry' && [row.entry.label, row.entry.hits, row.isOpen])).toEqual([
    ['g', 3, false],
    ['h', 0, false],
  ])
})

test('a scope is read only while all around it are open', () => {
  const open = new Set([...isOpen('a', 'a/b', 'c/d'), rowKey('gone', '', true)])
  expect(openScopes(open, ['g']).map((page) => page.scope)).toEqual(['', 'a', 'a/b'])
})
