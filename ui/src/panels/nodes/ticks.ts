import { useMutation, useMutationState, useQueryClient } from '@tanstack/react-query'
import { useCallback } from 'react'
import { useTranslation } from 'react-i18next'
import { change } from '~/api/client'
import { keys, path } from '~/api/queries'
import type { Watchpoint, WatchpointChange } from '~/api/types'
import { scopeOf } from './searchRows'
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

/** Whether an edit affects everything that a row represents. */
export function covers(edit: Edit, row: Pick<EntryRow, 'graph' | 'entry'>): boolean {
  const { entry } = row
  if (edit.graph !== '' && edit.graph !== row.graph) return false
  if (!isBranch(entry) && !entry.path.toLowerCase().includes(edit.containing.toLowerCase())) return false
  if (edit.path === '' || edit.path === entry.path) return true
  if (edit.path.startsWith('@')) return !isBranch(entry) && scopeOf(entry) === edit.path
  return entry.path.startsWith(`${edit.path}/`)
}

/** Return the tick of a row after the pending changes; undefined: unchanged. */
export function expected(
  row: Pick<EntryRow, 'graph' | 'entry'>,
  edits: readonly Edit[],
): boolean | undefined {
  return edits.findLast((edit) => covers(edit, row))?.add
}

/** Change the nodes that a watchpoint watches; ticks are updated immediately, and changes are sent one at a time. */
export function useTicks(run: string, watchpoint: number | null) {
  const { t } = useTranslation(nodesTexts)
  const client = useQueryClient()
  const { mutate } = useMutation({
    mutationKey: KEY,
    scope: { id: KEY.join('.') },
    mutationFn: (request: Change) =>
      change<Watchpoint>('PATCH', path(request.run, `/watchpoints/${request.watchpoint}`), {
        further_edits: request.edits,
      }),
    // Until they are refetched, the ticks show the requested state.
    onSettled: (_data, _error, request) =>
      client.invalidateQueries({ queryKey: keys.watchpoints(request.run) }),
    onError: (error) => tell(`${t('notTicked')}: ${error.message}`, 'error'),
  })
  const underWay = useMutationState({
    filters: { mutationKey: KEY, status: 'pending' },
    select: (mutation) => mutation.state.variables as Change | undefined,
  })
  const edits = underWay.flatMap((request) =>
    request?.run === run && request.watchpoint === watchpoint ? request.edits : [],
  )
  const tick = useCallback(
    (made: Edit[]) => {
      if (watchpoint !== null && made.length > 0) mutate({ run, watchpoint, edits: made })
    },
    [run, watchpoint, mutate],
  )
  return { tick, edits }
}
