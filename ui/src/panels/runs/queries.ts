import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { change, get } from '~/api/client'
import { keys, path } from '~/api/queries'
import type { DumpRecord, Session } from '~/api/types'
import { showRefusal } from '~/parts/refusal'
import { useView } from '~/state/store'

export function useDumps() {
  return useQuery({
    queryKey: keys.dumps,
    queryFn: ({ signal }) => get<DumpRecord[]>('dumps', {}, signal),
    // The server sends no event when a folder appears.
    staleTime: 3_000,
    refetchOnMount: true,
  })
}

/** Let the server search the disk again. */
export function useRefreshDumps() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: () => get<DumpRecord[]>('dumps', { refresh: true }),
    onSuccess: (dumps) => client.setQueryData(keys.dumps, dumps),
    onError: showRefusal,
  })
}

/** Open a dump or a recorded run, and show it. */
export function useOpenDump() {
  const openRun = useView((view) => view.openRun)
  return useMutation({
    mutationFn: (dump: string) => change<Session>('POST', 'sessions', { dump }),
    onSuccess: (session) => openRun(session.id),
    onError: showRefusal,
  })
}

export function useCloseRun() {
  const client = useQueryClient()
  return useMutation({
    mutationFn: (id: string) => change('DELETE', path(id)),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.dumps }),
    onError: showRefusal,
  })
}
