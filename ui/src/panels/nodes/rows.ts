import type { TreeEntry, TreePage } from '~/api/types'
import { TreeLines, type TreeLine } from '~/parts/treeLines'

/** Rows of a scope that are read at once. */
export const PAGE = 500

const ROWS_OF_UNKNOWN_SCOPE = 8

interface RowPosition extends TreeLine {
  rank: number
  /** The graph whose tree it is; empty: that of the whole program. */
  graph: string
}

export interface EntryRow extends RowPosition {
  kind: 'entry'
  entry: TreeEntry
  /** null: there is nothing to open. */
  isOpen: boolean | null
  /** What is known of it is from before the last change, and is being read anew. */
  isStale: boolean
  /** The graphs that have it, where those are others than of the row around it; empty: all. */
  marked: readonly string[]
  /** In a list without its scopes: the path of the scope that has it. */
  below?: string
}

export interface LoadingRow extends RowPosition {
  kind: 'loading'
  /** The page that has it, as `usePages` is asked for it. */
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

/** A page of rows as far as it is there. */
export interface KnownPage {
  page?: TreePage | undefined
  message?: string | undefined
  isStale: boolean
}

export function isBranch(entry: Pick<TreeEntry, 'kind'>): boolean {
  return entry.kind !== 'operator' && entry.kind !== 'parameter' && entry.kind !== 'constant'
}

/** A scope and a node may have the same path. */
export function rowKey(graph: string, path: string, branch: boolean): string {
  return `${graph}\n${path}${branch ? '\n' : ''}`
}

export function pageKey({ graph, scope, number }: PageName): string {
  return `${rowKey(graph, scope, true)}${number}`
}

/** Paths of the scopes around a scope, the outermost first, itself last; the root is not among them. */
export function scopesTo(scope: string): string[] {
  if (scope === '') return []
  if (scope.startsWith('@')) return [scope]
  const parts = scope.split('/')
  return parts.map((_, index) => parts.slice(0, index + 1).join('/'))
}

/** The key of an entry; of several nodes of one name each has its own. */
export function entryKey(
  graph: string,
  entry: Pick<TreeEntry, 'path' | 'kind' | 'apart' | 'graphs'>,
): string {
  const own = graph === '' && entry.apart ? `\n\n${entry.graphs[0] ?? ''}` : ''
  return rowKey(graph, entry.path, isBranch(entry)) + own
}

/** How a node is chosen: whatever graph ran has it, unless a graph was chosen, or several nodes have its name. */
export function graphOf(graph: string, entry: Pick<TreeEntry, 'apart' | 'graph'>): string {
  return graph === '' && entry.apart ? entry.graph : graph
}

/** The scopes whose rows can be seen: they, and all around them, are open. */
export function openScopes(open: ReadonlySet<string>, graph: string): PageName[] {
  const visible: PageName[] = []
  for (const key of open) {
    const [of = '', scope = ''] = key.split('\n')
    const around = ['', ...scopesTo(scope)]
    if (of === graph && around.every((one) => open.has(rowKey(graph, one, true)))) {
      visible.push({ graph, scope, number: 0 })
    }
  }
  return visible
}

/** How far something is watched all of whose parts are known; null: that is not known of one of them. */
export function watchedOf(
  parts: readonly Pick<TreeEntry, 'watched'>[],
): 'none' | 'some' | 'all' | 'never' | null {
  const seen = new Set(parts.map((part) => part.watched ?? null).filter((one) => one !== 'never'))
  if (seen.has(null)) return null
  if (seen.size === 0) return 'never'
  return seen.size === 1 ? ([...seen][0] ?? null) : 'some'
}

export interface TreeShape {
  rank: number
  /** Empty: of the whole program. */
  graph: string
  open: ReadonlySet<string>
  known: ReadonlyMap<string, KnownPage>
}

/** The rows of the tree as they stand one below the other; what is not there yet has rows of its own, so that nothing jumps. */
export function treeRows({ rank, graph, open, known }: TreeShape): TreeLines<Row> {
  const rows = new TreeLines<Row>()

  const addScope = (scope: string, depth: number, parent: number, expected: number, around: string) => {
    let total = expected
    for (let number = 0; number * PAGE < total || number === 0; number += 1) {
      const name = { graph, scope, number }
      const state = known.get(pageKey(name))
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
