import { Button, Group, Text } from '@mantine/core'
import { IconGhost2 } from '~/parts/icons'
import { useQueryClient } from '@tanstack/react-query'
import { useTranslation } from 'react-i18next'
import { keys } from '~/api/queries'
import type { Session } from '~/api/types'
import { Notice } from '~/parts/Notice'
import { useView } from '~/state/store'
import { useDumps, useOpenDump } from './queries'
import { runsTexts } from './texts'

/** Says that the run no longer exists, and offers its recording if there is one. */
export function Gone({ run, reason }: { run: string; reason: string }) {
  const { t } = useTranslation(runsTexts)
  const openRun = useView((view) => view.openRun)
  const session = useQueryClient().getQueryData<Session>(keys.record(run))
  const { data: dumps = [] } = useDumps()
  const { mutate: open, isPending } = useOpenDump()
  const recording = dumps.find(
    (dump) => !dump.problem && (dump.name === session?.dump || dump.name === `runs/${run}`),
  )
  return (
    <Notice icon={<IconGhost2 size={40} stroke={1.3} />} title={t('gone')} testId="run-gone">
      <Text c="var(--quiet)" ta="center" maw={520}>
        {reason
          ? t('goneReason', { reason })
          : t('goneText', { run: session?.name ?? recording?.title ?? run })}{' '}
        {recording && t('goneRecording')}
      </Text>
      <Group mt="xs">
        {recording && (
          <Button loading={isPending} onClick={() => open(recording.name)}>
            {t('openRecording')}
          </Button>
        )}
        <Button variant="default" onClick={() => openRun('')}>
          {t('list')}
        </Button>
      </Group>
    </Notice>
  )
}
