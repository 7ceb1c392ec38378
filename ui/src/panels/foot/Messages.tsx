import { ActionIcon, Button, Popover, UnstyledButton } from '@mantine/core'
import { IconAlertCircle, IconAlertTriangle, IconInfoCircle, IconX } from '~/parts/icons'
import { useEffect, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { moment } from '~/parts/times'
import { useMessages, type Message } from '~/state/messages'
import classes from './foot.module.css'
import { footTexts } from './texts'

const FRESH_MS = 8_000
const ICONS = { info: IconInfoCircle, warning: IconAlertTriangle, error: IconAlertCircle }

/** The newest message in one line, which covers nothing; a click lists all messages. */
export function Messages() {
  const { t } = useTranslation(footTexts)
  const all = useMessages((messages) => messages.all)
  const dismiss = useMessages((messages) => messages.dismiss)
  const [isOpen, setOpen] = useState(false)
  const newest = all.at(-1)
  const isFresh = useFresh(newest)
  return (
    <div className={classes['messages']} role="status" aria-live="polite" aria-label={t('messages')}>
      {newest && (
        <Popover opened={isOpen} onChange={setOpen} position="top-end" width={520} shadow="md">
          <Popover.Target>
            <UnstyledButton
              className={classes['message'] ?? ''}
              data-tone={newest.tone}
              data-fresh={isFresh}
              data-testid="message"
              title={newest.text}
              onClick={() => setOpen(!isOpen)}
            >
              <MessageText message={newest} />
              {all.length > 1 && <span className={classes['more']}>{t('all', { total: all.length })}</span>}
            </UnstyledButton>
          </Popover.Target>
          <Popover.Dropdown className={classes['list'] ?? ''}>
            <div className={classes['listHead']}>
              <b>{t('messages')}</b>
              <Button size="compact-xs" variant="default" onClick={() => dismiss()}>
                {t('clear')}
              </Button>
            </div>
            <ol>
              {all.toReversed().map((message) => (
                <li key={message.kind} data-tone={message.tone}>
                  <MessageText message={message} />
                  <time title={moment(message.at / 1000)}>{new Date(message.at).toLocaleTimeString()}</time>
                </li>
              ))}
            </ol>
          </Popover.Dropdown>
        </Popover>
      )}
      {newest && (
        <ActionIcon
          size={18}
          aria-label={t('dismiss')}
          title={t('dismiss')}
          onClick={() => dismiss(newest.kind)}
        >
          <IconX size={12} />
        </ActionIcon>
      )}
    </div>
  )
}

function MessageText({ message }: { message: Message }) {
  const { t } = useTranslation(footTexts)
  const Icon = ICONS[message.tone]
  return (
    <>
      <Icon size={14} aria-hidden />
      <span className={classes['text']}>{message.text}</span>
      {message.times > 1 && <span className={classes['times']}>{t('times', { times: message.times })}</span>}
    </>
  )
}

/** Whether a message has just arrived and is highlighted. */
function useFresh(message: Message | undefined): boolean {
  const [old, setOld] = useState(0)
  const at = message?.at ?? 0
  useEffect(() => {
    const timer = setTimeout(() => setOld(at), FRESH_MS)
    return () => clearTimeout(timer)
  }, [at])
  return message !== undefined && old !== at
}
