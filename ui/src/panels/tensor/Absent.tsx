import { Text } from '@mantine/core'
import { IconDatabaseOff, IconPlayerPause } from '~/parts/icons'
import { useQuery } from '@tanstack/react-query'
import { useTranslation } from 'react-i18next'
import { get } from '~/api/client'
import { keys, path, useSession } from '~/api/queries'
import type { Session, StatisticsRow, TensorRecord, Which } from '~/api/types'
import { Notice } from '~/parts/Notice'
import { useView } from '~/state/store'
import { tensorTexts } from './texts'

const MOST_STEPS = 12

/** Return why there is no value to show; null if a value is expected. */
export function absence(record: TensorRecord, which: Which, session: Session | undefined): string | null {
  const isHere = record.status === 'available' || record.status === 'at_source'
  if (which !== 'previous' && !isHere) return record.status
  if (which !== 'current' && !record.has_previous) return 'previous'
  if (record.status === 'at_source' && session && session.state !== 'paused') return 'at_source'
  return null
}

/** Shown instead of a missing value: says why it is missing, and what to do. */
export function Absent({ record, reason }: { record: TensorRecord; reason: string }) {
  const { t } = useTranslation(tensorTexts)
  const run = useView((view) => view.run)
  const { data: session } = useSession()
  const { data: history } = useQuery({
    queryKey: keys.step(run, 'history', record.address),
    queryFn: ({ signal }) =>
      get<StatisticsRow[]>(path(run, '/tensor/history'), { address: record.address }, signal),
    enabled: reason !== 'at_source',
  })
  const steps = (history ?? []).map((row) => row.step).filter((step) => step !== record.step)
  const shown = steps.slice(-MOST_STEPS).join(', ')
  return (
    <Notice
      testId="tensor-absent"
      icon={
        reason === 'at_source' ? (
          <IconPlayerPause size={28} aria-hidden />
        ) : (
          <IconDatabaseOff size={28} aria-hidden />
        )
      }
      title={t(`absent.${reason}`, { step: record.step })}
    >
      <Text c="var(--quiet)" ta="center" maw={520}>
        {t(explanation(record, reason, session), {
          step: record.step,
          state: session?.state,
        })}
      </Text>
      {steps.length > 0 && (
        <Text c="var(--quiet)" ta="center" maw={520}>
          {t('absent.knownAt', { steps: steps.length > MOST_STEPS ? `…, ${shown}` : shown })}
        </Text>
      )}
    </Notice>
  )
}

function explanation(record: TensorRecord, reason: string, session: Session | undefined): string {
  const isLive = session?.capabilities.live === true
  const isRecorded = session?.dump.startsWith('runs/') === true
  if (reason === 'at_source') {
    const isMoving = session?.state === 'running' || session?.state === 'sending'
    return isMoving ? 'absent.runningText' : 'absent.connectionText'
  }
  if (reason === 'previous') return record.step <= 1 ? 'absent.previousStart' : 'absent.previousText'
  if (reason === 'statistics_only') {
    if (isLive) return 'absent.statisticsLive'
    return isRecorded ? 'absent.statisticsRecorded' : 'absent.statisticsDump'
  }
  if (record.step === 0) return 'absent.notKeptStart'
  if (isLive) return 'absent.notKeptLive'
  return isRecorded ? 'absent.notKeptRecorded' : 'absent.notKeptDump'
}
