import { useQueryClient } from '@tanstack/react-query'
import { useTranslation } from 'react-i18next'
import { useSession, useWatchpoints } from '~/api/queries'
import { count } from '~/parts/numbers'
import type { Filter } from './filter'
import { scopeOf, type FoundNode } from './found'
import { FOUND_PAGE, foundPage, type TreeView } from './pages'
import { graphOf, isBranch, type EntryRow } from './rows'
import { nodesTexts } from './texts'
import { expected, useTicks, type Edit } from './ticks'
import type { Tick } from './TreeRow'
import type { Rows } from './useRows'
import { tell } from '~/state/messages'

// The server takes no more edits of one watchpoint.
const MOST_EDITS = 10_000

/** The boxes of the tree: how they stand, and what happens when one is clicked. */
export function useTicking(view: TreeView, filter: Filter, { isFiltered, graph, found }: Rows) {
  const { t } = useTranslation(nodesTexts)
  const client = useQueryClient()
  const { data: session } = useSession()
  const { data: watchpoints } = useWatchpoints()
  const watchpoint = watchpoints?.find((one) => one.id === view.watchpoint)
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

  /** All nodes that the filters find, also those that are not on the screen. */
  const allFound = async (): Promise<FoundNode[] | null> => {
    const total = found.total ?? 0
    if (total > MOST_EDITS) {
      tell(t('tooManyTicks', { total: count(total) }), 'warning')
      return null
    }
    const numbers = Array.from({ length: Math.ceil(total / FOUND_PAGE) }, (_, index) => index)
    const pages = await Promise.all(
      numbers.map((number) => client.query(foundPage(view, graph, filter, number))),
    )
    return pages.flatMap((page) => page.nodes)
  }

  const tickFound = (add: boolean, within: EntryRow | null) => {
    allFound()
      .then((nodes) => {
        const inside = nodes?.filter((one) => within === null || isIn(one, within)) ?? []
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
    else tickFound(add, row)
  }

  const onTickAll = (add: boolean) => {
    if (isFiltered && !isByName) {
      tickFound(add, null)
      return
    }
    const containing = isFiltered ? filter.name.trim() : ''
    // Of all graphs, also of those that come later, unless one was chosen.
    tick([{ add, graph, path: '', containing }])
  }

  return { watchpoint, locked, tickOf, onTick, onTickAll }
}

function isIn(found: FoundNode, row: EntryRow): boolean {
  const scope = scopeOf(found.entry)
  const { path } = row.entry
  return path === '' || scope === path || scope.startsWith(`${path}/`)
}
