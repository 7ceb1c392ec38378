import type { TreeEntry, TreePage } from '~/api/types'
import { TreeLines, type TreeLine } from '~/parts/treeLines'

/** Rows of a scope per request. */
export const PAGE = 500

const ROWS_OF_UNKNOWN_SCOPE = 8

interface RowPosition extends TreeLine {
  rank: number
  /** The graph of the tree; empty: the whole program. */
  graph: string
}

export interface EntryRow extends RowPosition {
  kind: 'entry'
  entry: TreeEntry
  /** Null: the row cannot be opened. */
  isOpen: boolean | null
  /** The entry is from before the last change and is being refetched. */
  isStale: boolean
  /** The graphs that have the entry, if they differ from those of the parent row; empty: all. */
  marked: readonly string[]
  /** In a list without scopes: the path of the entry's scope. */
  below?: string
}

export interface LoadingRow extends RowPosition {
  kind: 'loading'
  /** The page that contains the row. */
  page: PageName
}

export interface FailedRow extends RowPosition {
  kind: 'failed'
  page: PageName
  message: string
}

export type Row = EntryRow | LoadingRow | FailedRow

export interface PageName {
  graph: string
  scope: string
  number: number
}

/** The state of a page: loaded, failed, or neither yet. */
export interface PageState {
  page?: TreePage | undefined
  message?: string | undefined
  isStale: boolean
}

export function isBranch(entry: Pick<TreeEntry, 'kind'>): boolean {
  return entry.kind !== 'operator' && entry.kind !== 'parameter' && entry.kind !== 'constant'
}

/** Return the key of a row; a scope and a node with the same path have different keys. */
export function rowKey(graph: string, path: string, branch: boolean): string {
  return `${graph}\n${path}${branch ? '\n' : ''}`
}

export function pageKey({ graph, scope, number }: PageName): string {
  return `${rowKey(graph, scope, true)}${number}`
}

/** Return the paths of the scopes around a scope, outermost first and the scope itself last, without the root. */
export function scopesTo(scope: string): string[] {
  if (scope === '') return []
  if (scope.startsWith('@')) return [scope]
  const parts = scope.split('/')
  return parts.map((_, index) => parts.slice(0, index + 1).join('/'))
}

/** Return the key of an entry; several nodes of one name have different keys. */
export function entryKey(
  graph: string,
  entry: Pick<TreeEntry, 'path' | 'kind' | 'apart' | 'graphs'>,
): string {
  const suffix = graph === '' && entry.apart ? `\n\n${entry.graphs[0] ?? ''}` : ''
  return rowKey(graph, entry.path, isBranch(entry)) + suffix
}

/** Return the graph in which to select a node; empty: the one that ran. Nodes that share a name need theirs. */
export function graphOf(graph: string, entry: Pick<TreeEntry, 'apart' | 'graph'>): string {
  return graph === '' && entry.apart ? entry.graph : graph
}

/** Return the scopes with visible rows: they and all scopes around them are open. */
export function openScopes(open: ReadonlySet<string>, graph: string): PageName[] {
  const visible: PageName[] = []
  for (const key of open) {
    const [of = '', scope = ''] = key.split('\n')
    const around = ['', ...scopesTo(scope)]
    if (of === graph && around.every((path) => open.has(rowKey(graph, path, true)))) {
      visible.push({ graph, scope, number: 0 })
    }
  }
  return visible
}

/** Combine the watched states of all parts; null: the state of a part is unknown. */
export function watchedOf(
  parts: readonly Pick<TreeEntry, 'watched'>[],
): 'none' | 'some' | 'all' | 'never' | null {
  const seen = new Set(parts.map((part) => part.watched ?? null).filter((state) => state !== 'never'))
  if (seen.has(null)) return null
  if (seen.size === 0) return 'never'
  return seen.size === 1 ? ([...seen][0] ?? null) : 'some'
}

export interface TreeShape {
  rank: number
  /** Empty: the whole program. */
  graph: string
  open: ReadonlySet<string>
  pages: ReadonlyMap<string, PageState>
}

/** Return the rows of the tree from top to bottom, with placeholders for rows not loaded yet, so that nothing jumps. */
export function treeRows({ rank, graph, open, pages }: TreeShape): TreeLines<Row> {
  const rows = new TreeLines<Row>()

  const addScope = (scope: string, depth: number, parent: number, expected: number, around: string) => {
    let total = expected
    for (let number = 0; number * PAGE < total || number === 0; number += 1) {
      const name = { graph, scope, number }
      const state = pages.get(pageKey(name))
      const first = number * PAGE
      if (state?.page) {
        total = state.page.total
        state.page.entries.forEach((entry, index) => {
          const position = { rank, graph, depth, parent, nth: first + index + 1, siblings: total }
          addEntry(entry, position, state.isStale, around)
        })
      } else if (state?.message !== undefined) {
        const key = `${pageKey(name)}!`
        const position = { key, rank, graph, depth, parent, nth: first + 1, siblings: total }
        rows.push({ kind: 'failed', ...position, page: name, message: state.message })
      } else {
        const length = Math.min(PAGE, total - first)
        rows.pushStretch(length, (offset): LoadingRow => {
          const key = `${pageKey(name)}?${offset}`
          const nth = first + offset + 1
          return { kind: 'loading', key, rank, graph, depth, parent, nth, siblings: total, page: name }
        })
      }
    }
  }

  const addEntry = (
    entry: TreeEntry,
    position: Omit<RowPosition, 'key'>,
    isStale: boolean,
    around: string,
  ) => {
    const key = entryKey(graph, entry)
    const isOpen = isBranch(entry) ? open.has(key) : null
    const graphs = entry.graphs.join()
    const marked = graphs === around ? [] : entry.graphs
    const index = rows.push({ kind: 'entry', key, ...position, entry, isOpen, isStale, marked })
    if (isOpen) addScope(entry.path, position.depth + 1, index, entry.children, graphs)
  }

  addScope('', 0, -1, ROWS_OF_UNKNOWN_SCOPE, '')
  return rows
}
