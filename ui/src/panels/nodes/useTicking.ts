import { useQueryClient } from '@tanstack/react-query'
import { useTranslation } from 'react-i18next'
import { useSession, useWatchpoints } from '~/api/queries'
import { count } from '~/parts/numbers'
import type { Filter } from './filter'
import { scopeOf, type FoundNode } from './searchRows'
import { SEARCH_PAGE, searchPage, type TreeView } from './pages'
import { graphOf, isBranch, type EntryRow } from './rows'
import { nodesTexts } from './texts'
import { expected, useTicks, type Edit } from './ticks'
import type { Tick } from './TreeRow'
import type { Rows } from './useRows'
import { tell } from '~/state/messages'

// The server's limit of edits per watchpoint.
const MOST_EDITS = 10_000

/** The checkboxes of the tree: their state, and what a click does. */
export function useTicking(view: TreeView, filter: Filter, { isFiltered, graph, search }: Rows) {
  const { t } = useTranslation(nodesTexts)
  const client = useQueryClient()
  const { data: session } = useSession()
  const { data: watchpoints } = useWatchpoints()
  const watchpoint = watchpoints?.find((record) => record.id === view.watchpoint)
  const { tick, edits } = useTicks(view.run, view.watchpoint)
  const locked = session?.capabilities.can_edit_watchpoints === false ? t('notNow') : undefined
  const isByName = filter.name.trim() !== '' && !filter.kind && !filter.type.trim() && !filter.stack.trim()

  const tickOf = (row: EntryRow): Tick => {
    if (watchpoint === undefined) return null
    const watched = row.entry.watched ?? 'unknown'
    if (watched === 'never') return 'never'
    const soon = expected(row, edits)
    if (soon !== undefined) return soon ? 'all' : 'none'
    return row.isStale ? 'unknown' : watched
  }

  /** Load all nodes that match the filters, also those not shown yet. */
  const allMatches = async (): Promise<FoundNode[] | null> => {
    const total = search.total ?? 0
    if (total > MOST_EDITS) {
      tell(t('tooManyTicks', { total: count(total) }), 'warning')
      return null
    }
    const numbers = Array.from({ length: Math.ceil(total / SEARCH_PAGE) }, (_, index) => index)
    const pages = await Promise.all(
      numbers.map((number) => client.query(searchPage(view, graph, filter, number))),
    )
    return pages.flatMap((page) => page.nodes)
  }

  const tickMatches = (add: boolean, within: EntryRow | null) => {
    allMatches()
      .then((nodes) => {
        const inside = nodes?.filter((node) => within === null || isIn(node, within)) ?? []
        tick(
          inside.map(({ entry }): Edit => ({
            add,
            graph: graphOf(graph, entry),
            path: entry.path,
            containing: '',
          })),
        )
      })
      .catch((error: unknown) => {
        const message = error instanceof Error ? error.message : String(error)
        tell(`${t('notTicked')}: ${message}`, 'error')
      })
  }

  const onTick = (row: EntryRow) => {
    const now = tickOf(row)
    if (locked !== undefined || now === null || now === 'never' || now === 'unknown') return
    const add = now !== 'all'
    const whole = { add, graph: graphOf(row.graph, row.entry), path: row.entry.path }
    if (!isFiltered || !isBranch(row.entry)) tick([{ ...whole, containing: '' }])
    else if (isByName) tick([{ ...whole, containing: filter.name.trim() }])
    else tickMatches(add, row)
  }

  const onTickAll = (add: boolean) => {
    if (isFiltered && !isByName) {
      tickMatches(add, null)
      return
    }
    const containing = isFiltered ? filter.name.trim() : ''
    // In all graphs, also in those that come later, unless one was chosen.
    tick([{ add, graph, path: '', containing }])
  }

  return { watchpoint, locked, tickOf, onTick, onTickAll }
}

function isIn(node: FoundNode, row: EntryRow): boolean {
  const scope = scopeOf(node.entry)
  const { path } = row.entry
  return path === '' || scope === path || scope.startsWith(`${path}/`)
}
