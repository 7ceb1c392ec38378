import { useMutation, useMutationState, useQueryClient } from '@tanstack/react-query'
import { useCallback } from 'react'
import { useTranslation } from 'react-i18next'
import { change } from '~/api/client'
import { keys, path } from '~/api/queries'
import type { Watchpoint, WatchpointChange } from '~/api/types'
import { scopeOf } from './found'
import { isBranch, type EntryRow } from './rows'
import { nodesTexts } from './texts'
import { tell } from '~/state/messages'

export type Edit = WatchpointChange['further_edits'][number]

interface Change {
  run: string
  watchpoint: number
  edits: Edit[]
}

const KEY = ['nodes', 'ticks']

/** Whether an edit says something of all that a row stands for. */
export function covers(edit: Edit, row: Pick<EntryRow, 'graph' | 'entry'>): boolean {
  const { entry } = row
  if (edit.graph !== '' && edit.graph !== row.graph) return false
  if (!isBranch(entry) && !entry.path.toLowerCase().includes(edit.containing.toLowerCase())) return false
  if (edit.path === '' || edit.path === entry.path) return true
  if (edit.path.startsWith('@')) return !isBranch(entry) && scopeOf(entry) === edit.path
  return entry.path.startsWith(`${edit.path}/`)
}

/** What a row will show when the changes that are under way have been made; undefined: what it shows now. */
export function expected(
  row: Pick<EntryRow, 'graph' | 'entry'>,
  edits: readonly Edit[],
): boolean | undefined {
  return edits.findLast((edit) => covers(edit, row))?.add
}

/** Change what a watchpoint watches; the ticks follow at once, and the changes are made one after the other. */
export function useTicks(run: string, watchpoint: number | null) {
  const { t } = useTranslation(nodesTexts)
  const client = useQueryClient()
  const { mutate } = useMutation({
    mutationKey: KEY,
    scope: { id: KEY.join('.') },
    mutationFn: (one: Change) =>
      change<Watchpoint>('PATCH', path(one.run, `/watchpoints/${one.watchpoint}`), {
        further_edits: one.edits,
      }),
    // Until they are read anew the ticks are those that were asked for.
    onSettled: (_data, _error, one) => client.invalidateQueries({ queryKey: keys.watchpoints(one.run) }),
    onError: (error) => tell(`${t('notTicked')}: ${error.message}`, 'error'),
  })
  const underWay = useMutationState({
    filters: { mutationKey: KEY, status: 'pending' },
    select: (mutation) => mutation.state.variables as Change | undefined,
  })
  const edits = underWay.flatMap((one) =>
    one?.run === run && one.watchpoint === watchpoint ? one.edits : [],
  )
  const tick = useCallback(
    (made: Edit[]) => {
      if (watchpoint !== null && made.length > 0) mutate({ run, watchpoint, edits: made })
    },
    [run, watchpoint, mutate],
  )
  return { tick, edits }
}
