import { Button, Group, Loader, Progress, Text } from '@mantine/core'
import { IconCircleX } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { useProgress } from '~/api/queries'
import type { Session } from '~/api/types'
import { Notice } from '~/parts/Notice'
import { count } from '~/parts/numbers'
import { useView } from '~/state/store'
import { useCloseRun, useOpenDump } from './queries'
import { runsTexts } from './texts'

/** A run that is being opened: its progress, with a button to cancel. */
export function Opening({ session }: { session: Session }) {
  const { t } = useTranslation(runsTexts)
  const openRun = useView((view) => view.openRun)
  const progress = useProgress()
  const { mutate: close, isPending } = useCloseRun()
  const isLive = session.capabilities.live
  const cancel = () => close(session.id, { onSettled: () => openRun('') })
  return (
    <Notice icon={<Loader size="sm" />} title={t('opening', { name: session.name })} testId="opening">
      <Text c="var(--quiet)" ta="center" maw={520}>
        {session.message || t(isLive ? 'graphText' : 'openingText')}
      </Text>
      {progress && (
        <div style={{ width: 360 }}>
          <Progress
            value={progress.total > 0 ? (100 * progress.done) / progress.total : 100}
            animated={progress.total === 0}
            aria-label={progress.what}
          />
          <Text c="var(--quiet)" ta="center" mt={4}>
            {progress.what}
            {progress.total > 0 && ` · ${count(progress.done)} / ${count(progress.total)}`}
          </Text>
        </div>
      )}
      <Group mt="xs">
        {!isLive && (
          <Button variant="default" loading={isPending} onClick={cancel}>
            {t('cancel')}
          </Button>
        )}
        <Button variant="default" onClick={() => openRun('')}>
          {t('list')}
        </Button>
      </Group>
    </Notice>
  )
}

/** A dump that cannot be opened, with the reason. */
export function NotOpened({ session }: { session: Session }) {
  const { t } = useTranslation(runsTexts)
  const openRun = useView((view) => view.openRun)
  const { mutate: open, isPending } = useOpenDump()
  return (
    <Notice
      icon={<IconCircleX size={36} stroke={1.4} color="var(--hit)" />}
      title={t('failed', { name: session.name })}
      testId="not-opened"
    >
      <Text c="var(--quiet)" ta="center" maw={620} style={{ overflowWrap: 'anywhere' }}>
        {session.message}
      </Text>
      <Group mt="xs">
        {session.dump && (
          <Button loading={isPending} onClick={() => open(session.dump)}>
            {t('retry')}
          </Button>
        )}
        <Button variant="default" onClick={() => openRun('')}>
          {t('list')}
        </Button>
      </Group>
    </Notice>
  )
}
