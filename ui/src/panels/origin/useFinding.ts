import { useMemo } from 'react'
import { useTranslation } from 'react-i18next'
import { useOrigins, useSession } from '~/api/queries'
import type { Action } from '~/state/actions'
import { useActions } from '~/state/useActions'
import { originTexts } from './texts'
import { tell } from '~/state/messages'

/** Offer to look for where anomalies began while nothing hit: in a large dump that takes a while, so it is asked for. */
export function useFinding(): void {
  const { t } = useTranslation(originTexts)
  const { data: session } = useSession()
  const { data: found, refetch } = useOrigins()
  const canFind = session?.capabilities.has_origin === true && session.hits === 0 && !found?.length
  const actions = useMemo((): Action[] => {
    if (!canFind) return []
    const find = async () => {
      const { data, error } = await refetch()
      if (error) tell(t('failed', { message: error.message }), 'error', 'origin.find')
      else if (data?.length === 0) tell(t('nothingFound'), 'info', 'origin.find')
    }
    return [{ id: 'origin.find', label: t('find'), keys: 'alt+F', group: t('group'), run: () => void find() }]
  }, [canFind, refetch, t])
  useActions(actions)
}
