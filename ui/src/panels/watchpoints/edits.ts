import { useMutation, useQueryClient } from '@tanstack/react-query'
import { change } from '~/api/client'
import { keys, path } from '~/api/queries'
import type { Watchpoint, WatchpointChange, WatchpointSpec } from '~/api/types'
import { useView } from '~/state/store'
import { tell } from '~/state/messages'

/** Mutations of the watchpoints of the open session; errors are shown where the user made the change. */
export function useWatchpointEdits() {
  const run = useView((view) => view.run)
  const client = useQueryClient()
  const settled = () =>
    Promise.all(
      [keys.record(run), keys.watchpoints(run), keys.hits(run)].map((queryKey) =>
        client.invalidateQueries({ queryKey }),
      ),
    )
  const refuse = (error: Error) => tell(error.message, 'error')
  const watchpointPath = (id: number) => path(run, `/watchpoints/${id}`)
  return {
    // The dialog shows the errors of these two beside the fields.
    create: useMutation({
      mutationFn: (spec: WatchpointSpec) => change<Watchpoint>('POST', path(run, '/watchpoints'), spec),
      onSettled: settled,
    }),
    save: useMutation({
      mutationFn: ({ id, ...what }: { id: number } & Partial<WatchpointChange>) =>
        change<Watchpoint>('PATCH', watchpointPath(id), what),
      onSettled: settled,
    }),
    enable: useMutation({
      mutationFn: ({ id, enabled }: { id: number; enabled: boolean }) =>
        change<Watchpoint>('PATCH', watchpointPath(id), { enabled }),
      onSettled: settled,
      onError: refuse,
    }),
    remove: useMutation({
      mutationFn: (id: number) => change('DELETE', watchpointPath(id)),
      onSettled: settled,
      onError: refuse,
    }),
    clear: useMutation({
      mutationFn: () => change('DELETE', path(run, '/watchpoints')),
      onSettled: settled,
      onError: refuse,
    }),
  }
}
