import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useCallback } from 'react'
import { useTranslation } from 'react-i18next'
import { get } from '~/api/client'
import { keys, path, useSession } from '~/api/queries'
import type { Diagnosis, Facts, SearchPage } from '~/api/types'
import { EVERY_MS } from '~/panels/overview/queries'
import { showRefusal } from '~/parts/refusal'
import { tell } from '~/state/messages'
import { useView } from '~/state/store'
import { findingsTexts } from './texts'
import { nodeNamed, scopeText } from './where'

const MOST_NODES = 200
/** Facts are read rarely, and a table has up to 10,000 rows. */
const FACTS_EVERY_MS = 4 * EVERY_MS

/** What rules find in the facts of the run. */
export function useDiagnosis() {
  const run = useView((view) => view.run)
  const { data: session } = useSession()
  return useQuery({
    queryKey: keys.findings(run, 'diagnosis'),
    queryFn: ({ signal }) => get<Diagnosis>(path(run, '/findings'), {}, signal),
    enabled: session !== undefined && session.state !== 'connecting',
    // The number of steps that were looked at grows without an event.
    refetchInterval: session?.state === 'running' ? 2 * EVERY_MS : false,
  })
}

/** A table of the facts of the selected rank. */
export function useFacts(subject: string) {
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  const { data: session } = useSession()
  return useQuery({
    queryKey: keys.findings(run, 'facts', subject, rank),
    queryFn: ({ signal }) => get<Facts>(path(run, `/facts/${subject}`), { rank }, signal),
    enabled: session !== undefined && session.state !== 'connecting',
    refetchInterval: session?.state === 'running' ? FACTS_EVERY_MS : false,
  })
}

/** Return a function that selects the node of a parameter or module, or says that the graph has none. */
export function useSelectNamed(): (name: string, kind: 'parameter' | 'module') => void {
  const { t } = useTranslation(findingsTexts)
  const client = useQueryClient()
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  return useCallback(
    (name, kind) => {
      const query = { rank, name: kind === 'module' ? scopeText(name) : name, limit: MOST_NODES }
      const show = (page: SearchPage) => {
        const node = nodeNamed(page.nodes, name)
        if (node) useView.getState().selectNode(node)
        else tell(t('noNode', { name }), 'info', 'findings.node')
      }
      client
        .query({
          queryKey: keys.graphs(run, 'nodes named', query),
          queryFn: ({ signal }) => get<SearchPage>(path(run, '/nodes'), query, signal),
        })
        .then(show, showRefusal)
    },
    [client, run, rank, t],
  )
}
